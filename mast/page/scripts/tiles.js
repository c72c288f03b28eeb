"use strict";
// Photos as buttons; each shows its part of a sheet of a hundred.
const make = (tag, values = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), values);
  node.append(...children);
  return node;
};

function picture(at) {
  const place = at % 100, node = make("i", { className: `sheet-${Math.floor(at / 100)}` });
  node.style.backgroundPosition = `${((place % 10) * 100) / 9}% ${(Math.floor(place / 10) * 100) / 9}%`;
  return node;
}

// A photo; `beside` is the one that it is held against, if any.
function tile(at, caption = "", beside = null) {
  const button = make("button", { type: "button", className: "tile", title: DATA.names[at] }, picture(at));
  button.setAttribute("aria-label", [DATA.names[at], DATA.labels[at], caption].filter(Boolean).join(", "));
  if (SPACE) button.setAttribute("aria-pressed", String(state.query === at));
  button.dataset.at = at;
  if (beside !== null) button.dataset.beside = beside;
  return make("li", {}, button, ...(caption ? [make("span", { textContent: caption })] : []));
}

const tiles = (items) => make("ul", { className: "tiles" }, ...items);
const line = (text) => make("p", { className: "note", role: "status", textContent: text });

function save(name, lines) {
  const blob = new Blob(lines.map((each) => `${each}\n`), { type: "text/plain" });
  make("a", { href: URL.createObjectURL(blob), download: name }).click();
}

// Two photos and their difference, or one.
function compare(first, second) {
  const figure = (text, ...pictures) => make("figure", {}, make("div", {}, ...pictures), make("figcaption", { textContent: text }));
  const one = (at) => figure(DATA.names[at], picture(at));
  const dialog = document.getElementById("compare");
  dialog.querySelector("div").replaceChildren(one(first), ...(first === second ? [] : [one(second), figure("difference", picture(first), picture(second))]));
  dialog.showModal();
}
