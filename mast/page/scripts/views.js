"use strict";
// The views. Each gives a sentence, and the nodes that fill the page.
const NEAREST = 60, SHOWN = 500;
let shown = SHOWN; // photos that are laid out so far

const inWords = () => {
  const { ignored, matched } = state, listed = (names) => new Intl.ListFormat("en").format(names);
  if (matched.length) return `by ${listed(matched)} alone (--match ${matched.join(" ")})`;
  return ignored.length ? `ignoring ${listed(ignored)} (--ignore ${ignored.join(" ")})` : "as the encoder sees them (--space depths)";
};

async function photosView() {
  if (state.query === null) {
    const all = ALL.filter(isFound), some = all.slice(0, shown), rest = all.length - some.length;
    const more = button(`Show ${Math.min(SHOWN, rest)} more`, () => ((shown += SHOWN), draw()));
    const text = all.length ? `${counted(all.length, "photo")}. Choose one to see the most similar.` : NONE;
    return [text, tiles(some.map((at) => tile(at))), ...(rest ? [more] : [])];
  }
  const near = (await ask("nearest", state.query, bits(state.ignored), bits(state.matched))).filter(([at]) => isFound(at));
  const chosen = tile(state.query, "chosen");
  chosen.classList.add("query");
  return [
    near.length ? `Most similar first, ${inWords()}; 1.00 means identical.` : NONE,
    button("All photos", () => change({ query: null })),
    tiles([chosen, ...near.slice(0, NEAREST).map(([at, cosine]) => tile(at, cosine.toFixed(2).replace("-0.00", "0.00")))]),
  ];
}

async function mapView() {
  const places = await ask("map", bits(state.ignored), bits(state.matched));
  const onMap = ALL.filter((at) => at % SPACE.every === 0), old = document.querySelector(".map");
  const list = old ?? make("ul", { className: "map" }, ...onMap.map((at) => tile(at)));
  [...list.children].forEach((item, place) => {
    item.hidden = !isFound(onMap[place]);
    item.classList.toggle("query", onMap[place] === state.query);
    item.style.left = `${(94 * places[2 * place]) / 255}%`;
    item.style.top = `${(94 * places[2 * place + 1]) / 255}%`;
  });
  const of = SPACE.every > 1 ? ` of ${ALL.length.toLocaleString("en")}` : "";
  const count = onMap.filter(isFound).length;
  return [!count ? NONE : `${counted(count, "photo")}${of}. Those that lie close look alike, ${inWords()}.`, list];
}

const VIEWS = [
  ...(SPACE ? [{ title: "Photos", fill: photosView, chooses: true }, { title: "Map", fill: mapView, chooses: true }] : []),
  ...DATA.views.map((view) => ({ title: view.title, fill: () => rowsView(view) })),
];
