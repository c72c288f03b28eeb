"use strict";
// The controls, the keys, and the worker that computes.
const source = document.getElementById("space").textContent;
const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
const waiting = new Map();
let number = 0, spaceKey = null, drawing = 0;
worker.onmessage = ({ data }) => (waiting.get(data.number)(data.found), waiting.delete(data.number));

function ask(name, ...values) {
  worker.postMessage({ number: ++number, name, values });
  return new Promise((resolve) => waiting.set(number, resolve));
}

async function draw() {
  const mine = ++drawing, key = JSON.stringify([state.ignored, state.matched]);
  if (key !== spaceKey) ask("choose", state.ignored, state.matched);
  spaceKey = key;
  const nodes = await VIEWS.find(({ name }) => name === state.view).fill();
  if (mine !== drawing) return; // something else was chosen since
  const at = document.activeElement?.dataset?.at;
  const view = document.getElementById("view"), stays = nodes.at(-1) === view.lastElementChild;
  if (stays) view.firstElementChild.replaceWith(nodes[0]); // a map, whose photos move
  else view.replaceChildren(...nodes);
  if (at) document.querySelector(`#view [data-at="${at}"]`)?.focus();
  for (const button of document.querySelectorAll("nav button")) {
    button.setAttribute("aria-current", button.name === state.view ? "page" : "false");
  }
  for (const box of document.querySelectorAll("#choice input")) box.checked = stateOf(box.name) === box.value;
  document.getElementById("filter").value = state.filter;
  document.body.dataset.drawn = mine;
}

function controls() {
  const choice = document.getElementById("choice");
  Object.keys(DATA.properties).forEach((name, at) => {
    const field = make("fieldset", {}, make("legend", { textContent: `${at + 1} ${name}` }));
    for (const value of STATES) {
      const input = make("input", { type: "radio", name, value });
      input.onchange = () => chosen(name, value);
      field.append(make("label", {}, input, value));
    }
    choice.append(field);
  });
  const all = Object.keys(DATA.properties);
  const presets = [["As the encoder sees it", [], []], ["The same photo, edited", all, []]];
  if (all.includes("color")) presets.push(["The same colors", [], ["color"]]);
  for (const [textContent, ignored, matched] of presets) {
    const button = make("button", { type: "button", textContent });
    button.onclick = () => change({ ignored, matched });
    document.getElementById("presets").append(button);
  }
  for (const { name, title } of VIEWS) {
    const button = make("button", { type: "button", name, textContent: title });
    button.onclick = () => change({ view: name, query: name === "photos" && state.view === "photos" ? null : state.query });
    document.querySelector("nav").append(button);
  }
  document.querySelector("details").open = matchMedia("(min-width: 48rem)").matches;
  document.getElementById("filter").oninput = ({ target }) => change({ filter: target.value });
}

document.getElementById("view").addEventListener("click", ({ target }) => {
  const { at, beside } = target.closest(".tile")?.dataset ?? {};
  if (beside !== undefined && beside !== at) compare(Number(beside), Number(at));
  else if (at !== undefined) change({ view: "photos", query: Number(at) });
});

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (key === "Escape" && (state.query !== null || state.filter)) return change({ query: null, filter: "" });
  if (target.type === "search" || target.type === "radio") return;
  const name = Object.keys(DATA.properties)[Number(key) - 1];
  if (name) return chosen(name, STATES[(STATES.indexOf(stateOf(name)) + 1) % 3]);
  if (key.startsWith("Arrow")) moveFocus(key, event);
});

// To the next photo along a row, or the one above or below.
function moveFocus(key, event) {
  const all = [...document.querySelectorAll("#view .tile")], at = all.indexOf(document.activeElement);
  if (!all.length) return;
  event.preventDefault();
  const top = all[0].getBoundingClientRect().top;
  const columns = Math.max(1, all.findIndex((each) => each.getBoundingClientRect().top > top + 4));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))].focus();
}

listeners.push(draw);
addEventListener("popstate", () => (readAddress(), draw()));
readAddress();
controls();
ask("open", DATA);
draw();
