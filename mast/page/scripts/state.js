"use strict";
// What is on the screen, stored in the address, so that it can be sent.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SPACE = DATA.space, PROPERTIES = Object.keys(SPACE?.properties ?? {});
const STATES = ["counts", "ignored", "matched"];
const state = { view: "", query: null, filter: "", ignored: [], matched: [] };
const ALL = DATA.names.map((_, at) => at);

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1) || DATA.start);
  const names = (key) => PROPERTIES.filter((name) => given.get(key)?.split(",").includes(name));
  const query = DATA.names.indexOf(given.get("photo") ?? "");
  const view = (VIEWS.find(({ title }) => title === given.get("view")) ?? VIEWS[0]).title;
  const matched = names("match"), ignored = matched.length ? [] : names("ignore");
  Object.assign(state, { view, query: query < 0 ? null : query, filter: given.get("filter") ?? "", ignored, matched });
}

// Changes what is on the screen. Only a typed filter is no step of the browser's history.
function change(changes) {
  Object.assign(state, changes);
  const given = new URLSearchParams({ view: state.view });
  if (state.query !== null) given.set("photo", DATA.names[state.query]);
  if (state.ignored.length) given.set("ignore", state.ignored.join(","));
  if (state.matched.length) given.set("match", state.matched.join(","));
  if (state.filter) given.set("filter", state.filter);
  const isTyped = Object.keys(changes).join() === "filter";
  if (`#${given}` !== location.hash) history[isTyped ? "replaceState" : "pushState"](null, "", `#${given}`);
  const drawn = draw();
  if (changes.query != null) drawn.then(() => document.getElementById("status").scrollIntoView({ block: "nearest" }));
}

// Of a property: what was chosen. If another is matched, it is ignored.
const stateOf = (name) => STATES[state.ignored.includes(name) ? 1 : state.matched.includes(name) ? 2 : state.matched.length ? 1 : 0];

function choose(name, how) {
  const others = (names) => names.filter((each) => each !== name), matched = others(state.matched);
  if (how === STATES[2]) matched.push(name);
  const ignored = [...others(state.ignored), ...(how === STATES[1] ? [name] : [])];
  const inOrder = (names) => PROPERTIES.filter((each) => names.includes(each));
  change({ ignored: matched.length ? [] : inOrder(ignored), matched: inOrder(matched) });
}

// Whether a photo's name or label has the text that is searched for.
const isFound = (at) => [DATA.names[at], DATA.labels[at]].some((text) => text.toLowerCase().includes(state.filter.toLowerCase()));
