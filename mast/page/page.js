// The page is complete without this script. It adds what only a script can: tables that sort, tips
// that are read by keyboard, maps to walk through, and larger images.
"use strict";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

// ------------------------------------------------------------------------------------- tables

for (const table of all("table.sortable")) {
  const heads = all("thead th", table);
  heads.forEach((head, at) => {
    const name = head.firstElementChild;
    const button = make("button", { type: "button", textContent: name.textContent });
    name.replaceWith(button);
    button.addEventListener("click", () => sort(table, heads, at));
  });
}

function sort(table, heads, at) {
  const falling = heads[at].getAttribute("aria-sort") === "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[at].setAttribute("aria-sort", falling ? "descending" : "ascending");
  const sign = falling ? -1 : 1;
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [one.cells[at], other.cells[at]];
    if (!heads[at].classList.contains("number")) {
      return sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
    }
    const [x, y] = [a.dataset.number, b.dataset.number];
    if (x === "" || y === "") return (x === "") - (y === ""); // what is not known comes last
    return sign * (x - y);
  });
  body.append(...rows);
}

const overflow = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.previousElementSibling.hidden = target.scrollWidth <= target.clientWidth;
  }
});
all(".wide").forEach((region) => overflow.observe(region));

// --------------------------------------------------------------------------------------- tips

const bubble = document.querySelector(".bubble");
let said = null; // the tip that it speaks of

function say(tip) {
  said = tip;
  const box = tip.getBoundingClientRect();
  bubble.textContent = tip.getAttribute("aria-label");
  bubble.hidden = false;
  const { width, height } = bubble.getBoundingClientRect();
  const middle = box.left + box.width / 2 - width / 2;
  const left = Math.max(4, Math.min(middle, innerWidth - width - 4));
  const top = box.top - height - 6 > 0 ? box.top - height - 6 : Math.min(box.bottom + 6, innerHeight - height - 4);
  bubble.style.left = `${left}px`;
  bubble.style.top = `${top}px`;
}

function hush() {
  said = null;
  bubble.hidden = true;
}

for (const plot of all(".plot")) {
  // One stop of the Tab key a figure; arrow keys go from tip to tip.
  const tips = all(".tip", plot);
  tips.forEach((tip, at) => {
    const title = tip.querySelector("title");
    tip.setAttribute("aria-label", title.textContent);
    title.remove();
    tip.setAttribute("tabindex", at === 0 ? "0" : "-1");
    tip.addEventListener("mouseenter", () => say(tip));
    tip.addEventListener("mouseleave", hush);
    tip.addEventListener("focus", () => say(tip));
    tip.addEventListener("blur", hush);
  });
  plot.addEventListener("keydown", (event) => {
    const at = tips.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hush();
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    const next = tips[(at + step + tips.length) % tips.length];
    tips[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
addEventListener("scroll", () => {
  // What is looked at may have been scrolled into sight just now: its tip moves along.
  if (said?.matches(":focus, :hover")) say(said);
  else hush();
}, { passive: true, capture: true });

// --------------------------------------------------------------------------------------- maps

const SVG = "http://www.w3.org/2000/svg";

for (const map of all(".map")) walk(map);

function walk(map) {
  const data = JSON.parse(map.querySelector("script").textContent);
  const sheet = document.getElementById(map.id.replace("map", "sheet"));
  const plane = map.querySelector(".plane");
  const canvas = map.querySelector(".looked-at canvas");
  const words = map.querySelector(".looked-at p");
  const legend = map.querySelector(".legend");
  const pinned = map.querySelector(".pinned");
  const pictured = map.querySelector("[type=checkbox]");
  const pins = new Set();
  let arrangement = data.points.length - 1;
  let looked = null;

  const dots = data.captions.map((caption, at) => {
    const dot = document.createElementNS(SVG, "g");
    dot.append(document.createElementNS(SVG, "circle"));
    dot.addEventListener("mouseenter", () => look(at));
    dot.addEventListener("click", () => pin(at));
    plane.append(dot);
    return dot;
  });

  const place = (at) => data.points[arrangement][at];
  const known = (at) => place(at).every((value) => value !== null);

  function arrange(chosen) {
    arrangement = chosen;
    dots.forEach((dot, at) => {
      const [x, y] = place(at);
      dot.style.display = known(at) ? "" : "none";
      if (known(at)) dot.style.transform = `translate(${1000 * x}px, ${1000 * (1 - y)}px)`;
    });
  }

  function paint(chosen) {
    const coloring = data.colorings[chosen];
    dots.forEach((dot, at) => {
      const ink = coloring ? coloring.classes[coloring.labels[at]]?.color : null;
      dot.firstChild.setAttribute("fill", ink ?? "#7F7F7F");
    });
    map.style.setProperty("--edge", coloring?.outline ?? ""); // none: that of the style sheet
    legend.replaceChildren(...(coloring?.classes ?? []).map(({ name, color }) => {
      const item = make("li", { textContent: name });
      const swatch = make("i");
      swatch.style.background = color;
      item.prepend(swatch);
      return item;
    }));
  }

  function show(canvas, at) {
    const [column, row] = [at % data.columns, Math.floor(at / data.columns)];
    const { side } = data;
    canvas.getContext("2d").drawImage(
      sheet, column * side, row * side, side, side, 0, 0, canvas.width, canvas.height,
    );
  }

  function size() {
    const radius = pictured.checked ? 26 : 11;
    dots.forEach((dot, at) => dot.firstChild.setAttribute("r", radius + (pins.has(at) ? 8 : 0)));
  }

  function picture() {
    size();
    const small = make("canvas", { width: data.side, height: data.side });
    dots.forEach((dot, at) => {
      dot.querySelector("image")?.remove();
      if (!pictured.checked) return;
      show(small, at);
      const image = document.createElementNS(SVG, "image");
      const place = { x: -21, y: -21, width: 42, height: 42, href: small.toDataURL("image/jpeg") };
      Object.entries(place).forEach(([name, value]) => image.setAttribute(name, value));
      dot.append(image);
    });
  }

  function look(at) {
    if (looked === at) return; // a dot that is moved in the document again loses the click on it
    if (looked !== null) dots[looked].classList.remove("at");
    looked = at;
    dots[at].classList.add("at");
    plane.append(dots[at]); // above the others
    show(canvas, at);
    words.textContent = data.captions[at];
  }

  function pin(at) {
    look(at);
    if (!pins.delete(at)) pins.add(at);
    dots.forEach((dot, index) => {
      dot.classList.toggle("kept", pins.has(index));
    });
    size();
    pinned.replaceChildren(...[...pins].map((index) => {
      const button = make("button", { type: "button", title: `Unpin ${data.captions[index]}` });
      const small = make("canvas", { width: 96, height: 96 });
      button.setAttribute("aria-label", button.title);
      button.append(small);
      button.addEventListener("click", () => pin(index));
      button.addEventListener("mouseenter", () => look(index));
      show(small, index);
      const item = make("li");
      item.append(button);
      return item;
    }));
  }

  function neighbour(dx, dy) {
    if (looked === null || !known(looked)) return dots.findIndex((_, at) => known(at));
    const [x, y] = place(looked);
    let [nearest, least] = [looked, Infinity];
    dots.forEach((_, at) => {
      if (at === looked || !known(at)) return;
      const along = (place(at)[0] - x) * dx + (place(at)[1] - y) * dy;
      const across = Math.abs((place(at)[0] - x) * dy) + Math.abs((place(at)[1] - y) * dx);
      if (along > 0 && across <= along && along + 2 * across < least) {
        [nearest, least] = [at, along + 2 * across];
      }
    });
    return nearest;
  }

  plane.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way) {
      const next = neighbour(...way);
      if (next >= 0) look(next);
    } else if ((event.key === "Enter" || event.key === " ") && looked !== null) {
      pin(looked);
    } else if (event.key === "Escape") {
      [...pins].forEach(pin);
    } else {
      return;
    }
    event.preventDefault();
  });
  pictured.addEventListener("change", picture);
  all("[type=radio]", map).forEach((radio) => radio.addEventListener("change", () => arrange(+radio.value)));
  map.querySelector("select")?.addEventListener("change", (event) => paint(+event.target.value));

  arrange(arrangement);
  paint(0);
  size();
  map.hidden = false;
}

// ------------------------------------------------------------------------------ larger images

const dialog = document.querySelector("dialog");
let shelf = [];
let shown = 0;

function enlarge(at) {
  shown = (at + shelf.length) % shelf.length;
  const image = dialog.querySelector("img");
  image.src = shelf[shown].src;
  image.alt = shelf[shown].alt;
  const title = shelf[shown].closest(".gallery").dataset.title;
  dialog.querySelector("figcaption").textContent =
    `${title}, ${shown + 1} of ${shelf.length}: ${image.alt}`;
}

for (const gallery of all(".gallery")) {
  const images = all("img", gallery);
  images.forEach((image, at) => {
    const button = make("button", { type: "button" });
    image.replaceWith(button);
    button.append(image);
    button.addEventListener("click", () => {
      shelf = images;
      enlarge(at);
      dialog.showModal();
    });
  });
}

dialog.addEventListener("click", (event) => {
  const turns = { previous: -1, next: 1 };
  if (event.target === dialog || event.target.value === "close") dialog.close();
  if (event.target.value in turns) enlarge(shown + turns[event.target.value]);
});
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) enlarge(shown + step);
});

// -------------------------------------------------------------------------- sections and paper

const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -80% 0px" });
all("main > section").forEach((section) => watch.observe(section));

let closed = [];
addEventListener("beforeprint", () => {
  closed = all("details:not([open])");
  closed.forEach((details) => { details.open = true; });
});
addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
