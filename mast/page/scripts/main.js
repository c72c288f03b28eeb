"use strict";
// The controls, the keys, and the worker that ranks.
const waiting = new Map();
const source = document.getElementById("space").textContent;
const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
worker.onmessage = ({ data }) => (waiting.get(data.number)(data.found), waiting.delete(data.number));
let number = 0, drawing = 0;

function ask(name, ...values) {
  worker.postMessage({ number: ++number, name, values });
  return new Promise((resolve) => waiting.set(number, resolve));
}

const chosenBits = () => `${bits(state.ignored)} ${bits(state.matched)}`;
const bits = (names) => names.reduce((sum, name) => sum + 2 ** PROPERTIES.indexOf(name), 0);

async function draw() {
  const mine = ++drawing, nodes = await VIEWS.find(({ title }) => title === state.view).fill();
  if (mine !== drawing) return; // something else was chosen since
  const at = document.activeElement?.dataset?.at, view = document.getElementById("view");
  if (nodes.at(-1) === view.lastElementChild) view.firstElementChild.replaceWith(nodes[0]); // a map, whose photos move
  else view.replaceChildren(...nodes);
  if (at) document.querySelector(`#view [data-at="${at}"]`)?.focus();
  for (const button of document.querySelectorAll("nav button")) button.setAttribute("aria-current", button.name === state.view ? "page" : "false");
  for (const input of document.querySelectorAll("#choice input")) input.checked = stateOf(input.name) === input.value;
  for (const button of document.querySelectorAll("#presets button")) button.setAttribute("aria-pressed", String(button.value === chosenBits()));
  document.getElementById("choosing").hidden = !SPACE || DATA.views.some(({ title }) => title === state.view);
  document.getElementById("filter").value = state.filter;
  document.body.dataset.drawn = mine;
}

function controls() {
  const button = (textContent, onclick, name = "") => make("button", { type: "button", textContent, onclick, name });
  PROPERTIES.forEach((name, at) => {
    const radio = (value) => make("label", {}, make("input", { type: "radio", name, value, onchange: () => choose(name, value) }), value);
    document.getElementById("choice").append(make("fieldset", {}, make("legend", { textContent: `${at + 1} ${name}` }), ...STATES.map(radio)));
  });
  const presets = [["As the encoder sees it", [], []], ["The same photo, edited", PROPERTIES, []], ["The same colors", [], ["color"]]];
  for (const [title, ignored, matched] of presets.filter(([, , names]) => names.every((name) => PROPERTIES.includes(name)))) {
    const preset = button(title, () => change({ ignored, matched }));
    preset.value = `${bits(ignored)} ${bits(matched)}`;
    document.getElementById("presets").append(preset);
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
  if (beside !== undefined && (beside !== at || !SPACE)) compare(Number(beside), Number(at));
  else if (at !== undefined) change({ view: VIEWS[0].title, query: Number(at) });
});

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (key === "Escape") return change({ query: null, filter: "" });
  if (target.type === "search" || target.type === "radio") return;
  const name = PROPERTIES[Number(key) - 1];
  if (name) choose(name, STATES[(STATES.indexOf(stateOf(name)) + 1) % 3]);
  else if (key.startsWith("Arrow")) moveFocus(key, event);
});

// To the next photo along a row, or to the one above or below.
function moveFocus(key, event) {
  const all = [...document.querySelectorAll("#view .tile")], here = all.indexOf(document.activeElement);
  if (here < 0 && key !== "ArrowDown") return;
  event.preventDefault();
  const place = (node) => node.getBoundingClientRect(), from = here < 0 ? null : place(all[here]);
  const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (across || !from) return all[here + (across ?? 1)]?.focus();
  const down = key === "ArrowDown" ? 1 : -1;
  for (let to = here + down; all[to]; to += down) {
    const { top, left, right } = place(all[to]), middle = (from.left + from.right) / 2;
    if ((top - from.top) * down > 4 && left <= middle && middle <= right + 12) return all[to].focus();
  }
}

addEventListener("popstate", () => (readAddress(), draw()));
readAddress();
controls();
if (SPACE) ask("open", SPACE);
draw();
