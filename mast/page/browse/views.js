"use strict";
// The views: each fills the page with what the state asks for.
const NEAREST = 60, SHOWN = 500, MAPPED = 1000;
let shown = SHOWN; // photos that are laid out so far

const spaceInWords = () => {
  const { ignored, matched } = state;
  if (matched.length) return `by ${matched.join(" and ")} alone`;
  return ignored.length ? `whatever the ${ignored.join(" and ")}` : "as the encoder sees them";
};

async function photosView() {
  if (state.query === null) {
    const all = [...DATA.names.keys()].filter(found), some = all.slice(0, shown);
    const more = make("button", { type: "button", textContent: `Show ${all.length - some.length} more` });
    more.onclick = () => ((shown += SHOWN), draw());
    return [line(`${all.length} photos. Choose one to see what is near it.`), tiles(some), ...(some.length < all.length ? [more] : [])];
  }
  const near = await ask("nearest", state.query, DATA.names.length);
  const some = near.filter(([at]) => at === state.query || found(at)).slice(0, NEAREST + 1);
  const cosine = new Map(some);
  const caption = (at) => (at === state.query ? "chosen" : cosine.get(at).toFixed(2));
  return [line(`Nearest to ${DATA.names[state.query]}, ${spaceInWords()}, by cosine.`), tiles(some.map(([at]) => at), caption)];
}

async function mapView() {
  const [across, down] = await ask("map");
  const all = [...DATA.names.keys()].filter(found), step = Math.ceil(all.length / MAPPED);
  const some = all.filter((_, at) => at % step === 0);
  const old = document.querySelector(".map");
  const list = old?.dataset.filter === state.filter ? old : make("ul", { className: "map" });
  if (list !== old) list.append(...some.map((at) => tile(at)));
  list.dataset.filter = state.filter;
  for (const item of list.children) {
    const at = Number(item.firstChild.dataset.at);
    item.style.left = `${94 * across[at]}%`;
    item.style.top = `${94 * down[at]}%`;
  }
  const of = step > 1 ? `${some.length} of ${all.length} photos` : `${all.length} photos`;
  return [line(`${of} along the two leading axes, ${spaceInWords()}.`), list];
}

function outliersView() {
  const some = DATA.outliers.filter(([at]) => found(at)).slice(0, 200), far = new Map(some);
  return [line("The photos that are least like any other first, by one minus the cosine to the fifth nearest."), tiles(some.map(([at]) => at), (at) => far.get(at).toFixed(2))];
}

function labelsView() {
  const some = DATA.suspects.filter(([at]) => found(at)), says = new Map(some.map(([at, ...rest]) => [at, rest]));
  return [line("Labels that are likely wrong, the least likely first: label → suggested."), tiles(some.map(([at]) => at), (at) => `${DATA.labels[at]} → ${says.get(at)[0]}`)];
}

const VIEWS = [
  { name: "photos", title: "Photos", fill: photosView },
  { name: "map", title: "Map", fill: mapView },
  { name: "copies", title: "Copies", fill: () => copiesView(), has: () => DATA.copies.length },
  { name: "outliers", title: "Outliers", fill: outliersView, has: () => DATA.outliers.length },
  { name: "labels", title: "Labels", fill: labelsView, has: () => DATA.suspects.length },
].filter(({ has }) => !has || has());
