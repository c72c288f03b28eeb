"use strict";
// The views. Each gives the nodes that fill the page.
const NEAREST = 60, SHOWN = 500;
let shown = SHOWN; // photos that are laid out so far

const inWords = () => {
  const { ignored, matched } = state;
  if (matched.length) return `by ${matched.join(" and ")} alone`;
  if (ignored.length === PROPERTIES.length) return "however they were edited";
  return ignored.length ? `whatever the ${ignored.join(" and ")}` : "as the encoder sees them";
};

async function photosView() {
  if (state.query === null) {
    const all = ALL.filter(isFound), some = all.slice(0, shown), rest = all.length - some.length;
    const more = make("button", { type: "button", textContent: `Show ${Math.min(SHOWN, rest)} more`, onclick: () => ((shown += SHOWN), draw()) });
    return [line(`${all.length.toLocaleString("en")} photos. Choose one to see what is nearest to it.`), tiles(some.map((at) => tile(at))), ...(rest ? [more] : [])];
  }
  const near = (await ask("nearest", state.query, bits(state.ignored), bits(state.matched))).filter(([at]) => isFound(at));
  return [
    line(`The nearest ${inWords()}, by cosine.`),
    tiles([tile(state.query, DATA.names[state.query]), ...near.slice(0, NEAREST).map(([at, cosine]) => tile(at, cosine.toFixed(2)))]),
  ];
}

async function mapView() {
  const places = await ask("map", bits(state.ignored), bits(state.matched));
  const onMap = ALL.filter((at) => at % SPACE.every === 0), old = document.querySelector(".map");
  const list = old ?? make("ul", { className: "map" }, ...onMap.map((at) => tile(at)));
  [...list.children].forEach((item, place) => {
    item.hidden = !isFound(onMap[place]);
    item.style.left = `${(94 * places[2 * place]) / 255}%`;
    item.style.top = `${(94 * places[2 * place + 1]) / 255}%`;
  });
  const of = SPACE.every > 1 ? ` of ${ALL.length}` : "";
  return [line(`${onMap.filter(isFound).length}${of} photos along the two leading axes, ${inWords()}.`), list];
}

const VIEWS = [
  ...(SPACE ? [{ title: "Photos", fill: photosView }, { title: "Map", fill: mapView }] : []),
  ...DATA.views.map((view) => ({ title: view.title, fill: () => rowsView(view) })),
];
