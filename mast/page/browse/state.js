"use strict";
// What is on the screen, kept in the address, so that it can be sent.
const DATA = JSON.parse(document.getElementById("data").textContent);
const STATES = ["as it is", "ignored", "matched"];
const state = { view: "photos", query: null, filter: "", ignored: [], matched: [] };
const listeners = [];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const names = (key) => (given.get(key) ?? "").split(",").filter((name) => name in DATA.properties);
  const query = DATA.names.indexOf(given.get("photo") ?? "");
  const view = VIEWS.some(({ name }) => name === given.get("view")) ? given.get("view") : "photos";
  const matched = names("match");
  const ignored = names("ignore").filter((name) => !matched.includes(name));
  Object.assign(state, { view, query: query < 0 ? null : query, filter: given.get("filter") ?? "", ignored, matched });
}

function writeAddress() {
  const given = new URLSearchParams();
  if (state.view !== "photos") given.set("view", state.view);
  if (state.query !== null) given.set("photo", DATA.names[state.query]);
  if (state.ignored.length) given.set("ignore", state.ignored.join(","));
  if (state.matched.length) given.set("match", state.matched.join(","));
  if (state.filter) given.set("filter", state.filter);
  const address = given.size ? `#${given}` : "#";
  if (address !== (location.hash || "#")) history.pushState(null, "", address);
}

// Changes what is on the screen; what listens is told once.
function change(changes) {
  Object.assign(state, changes);
  writeAddress();
  for (const listen of listeners) listen();
}

const stateOf = (name) => (state.ignored.includes(name) ? "ignored" : state.matched.includes(name) ? "matched" : "as it is");

function chosen(name, how) {
  const without = (names) => names.filter((each) => each !== name);
  change({
    ignored: how === "ignored" ? [...without(state.ignored), name] : without(state.ignored),
    matched: how === "matched" ? [...without(state.matched), name] : without(state.matched),
  });
}

const found = (at) => {
  const words = state.filter.toLowerCase();
  return !words || DATA.names[at].toLowerCase().includes(words) || (DATA.labels?.[at] ?? "").toLowerCase().includes(words);
};
