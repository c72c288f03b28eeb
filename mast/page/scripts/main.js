"use strict";
// The controls, the keys, and the worker that ranks.
const MEANINGS = {
  color: "hue, brightness, contrast", focus: "sharp or blurred", noise: "grain", orientation: "rotated, mirrored, slanted",
  parts: "a part is covered", position: "place and size in the picture",
};
const waiting = new Map();
let worker = null, number = 0, drawing = 0;

function startWorker() {
  const source = document.getElementById("space").textContent;
  worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  worker.onmessage = ({ data: { number: of, found, error } }) => {
    const { resolve, reject } = waiting.get(of);
    waiting.delete(of);
    if (error) reject(error);
    else resolve(found);
  };
  ask("open", SPACE).catch(() => null); // what is asked next says it
}

function ask(name, ...values) {
  worker.postMessage({ number: ++number, name, values });
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
}

const bits = (names) => names.reduce((sum, name) => sum + 2 ** PROPERTIES.indexOf(name), 0);
const shownView = () => VIEWS.find(({ title }) => title === state.view);

async function draw() {
  const mine = ++drawing, failed = (error) => [`This browser cannot rank the photos: ${error}`];
  const [text, ...nodes] = await Promise.resolve(shownView().fill()).catch(failed);
  if (mine !== drawing) return; // something else was chosen since
  const view = document.getElementById("view"), old = document.activeElement;
  const alike = () => [...view.querySelectorAll(`[data-at="${old?.dataset.at}"]`)], place = alike().indexOf(old);
  document.getElementById("status").textContent = text;
  if (nodes.at(-1) !== view.lastElementChild) view.replaceChildren(...nodes); // else a map, whose photos moved
  if (place >= 0) alike()[place]?.focus({ preventScroll: true });
  for (const each of document.querySelectorAll("nav button")) each.setAttribute("aria-current", each.name === state.view ? "page" : "false");
  for (const input of document.querySelectorAll("#choice input")) input.checked = stateOf(input.name) === input.value;
  for (const each of document.querySelectorAll("#presets button")) each.setAttribute("aria-pressed", String(each.name === choiceOf(state)));
  document.getElementById("choosing").hidden = !shownView().chooses;
  document.getElementById("filter").value = state.filter;
  document.body.dataset.drawn = mine;
}

const choiceOf = ({ ignored, matched }) => `${bits(ignored)} ${bits(matched)}`;

function controls() {
  PROPERTIES.forEach((name, at) => {
    const radio = (value) => make("label", {}, make("input", { type: "radio", name, value, onchange: () => choose(name, value) }), value);
    const legend = make("legend", { textContent: `${at + 1} ${name}` });
    document.getElementById("choice").append(make("fieldset", { title: MEANINGS[name] ?? "" }, legend, ...STATES.map(radio)));
  });
  const presets = { "As the encoder sees it": [[], []], "The same photo, edited": [PROPERTIES, []], "The same colors": [[], ["color"]] };
  for (const [title, [ignored, matched]] of Object.entries(presets)) {
    const isKnown = matched.every((name) => PROPERTIES.includes(name)), choice = { ignored, matched };
    if (isKnown) document.getElementById("presets").append(button(title, () => change(choice), choiceOf(choice)));
  }
  for (const { title } of VIEWS.length > 1 ? VIEWS : []) {
    const open = () => change({ view: title, query: title === state.view ? null : state.query });
    document.querySelector("nav").append(button(title, open, title));
  }
  document.querySelector("details").open = matchMedia("(min-width: 48rem)").matches;
  document.getElementById("filter").oninput = ({ target }) => change({ filter: target.value });
}

document.getElementById("view").addEventListener("click", ({ target }) => {
  const { at, beside } = target.closest(".tile")?.dataset ?? {};
  if (at === undefined) return;
  if (SPACE && beside === undefined) change({ view: VIEWS[0].title, query: Number(at) });
  else compare(Number(beside ?? at), Number(at));
});

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (key === "Escape") return change(state.filter ? { filter: "" } : { query: null });
  const name = shownView().chooses && target.type !== "search" && PROPERTIES[Number(key) - 1];
  if (name) choose(name, STATES[(STATES.indexOf(stateOf(name)) + 1) % 3]);
  else if (key.startsWith("Arrow") && !["search", "radio"].includes(target.type)) moveFocus(key, event);
});

// To the next photo along a row, or to the one above or below; from nowhere to the first in view.
function moveFocus(key, event) {
  const all = [...document.querySelectorAll("#view .tile")].filter((each) => each.offsetParent);
  const here = all.indexOf(document.activeElement), place = (node) => node.getBoundingClientRect();
  if (here < 0) {
    const top = Math.max(0, place(document.getElementById("choosing")).bottom);
    const first = key === "ArrowDown" && all.find((each) => place(each).top >= top);
    if (!first) return;
    event.preventDefault();
    first.focus({ preventScroll: true });
    return;
  }
  const across = { ArrowLeft: -1, ArrowRight: 1 }[key], down = key === "ArrowDown" ? 1 : -1;
  if (all[here].closest(".map")) {
    const sign = across ?? down;
    const away = (each) => {
      const center = ({ left, right, top, bottom }) => [(left + right) / 2, (top + bottom) / 2];
      const [[a, b], [c, d]] = [center(place(each)), center(place(all[here]))], x = a - c, y = b - d;
      const [along, aside] = across ? [sign * x, y] : [sign * y, x];
      return along > 0 && Math.abs(aside) <= along ? Math.hypot(x, y) : Infinity;
    };
    const near = all.reduce((best, each) => (away(each) < away(best) ? each : best), all[here]);
    event.preventDefault();
    return near.focus();
  }
  let to = here + (across ?? down);
  const { top, left, right } = place(all[here]), middle = (left + right) / 2;
  const isThere = (other) => (other.top - top) * down > 4 && other.left <= middle && middle <= other.right + 12;
  while (!across && all[to] && !isThere(place(all[to]))) to += down;
  if (!all[to]) return;
  event.preventDefault();
  all[to].focus();
}

addEventListener("popstate", () => (document.getElementById("compare").close(), readAddress(), draw()));
readAddress();
controls();
if (SPACE) startWorker();
draw();
