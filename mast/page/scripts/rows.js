"use strict";
// Rows of what was found. Of copies, the user ticks which to keep and which are not copies.
const dropped = new Set(); // positions of the copies that are not kept
const apart = new Map(); // pairs of names that are not copies
const unsaved = new Set(); // lists whose ticks were changed
addEventListener("beforeunload", (event) => unsaved.size && event.preventDefault());
for (const { rows } of DATA.views) for (const { tiles: items } of rows) for (const { at, kept } of items) if (kept === false) dropped.add(at);

function rowsView({ lead, rows, more }) {
  const hasCopies = rows.some(({ tiles: items }) => items.some(({ kept }) => kept !== null));
  const some = rows.filter(({ tiles: items }) => items.some(({ at }) => isFound(at)));
  const heading = (text) => (text ? [make("h2", { textContent: text })] : []);
  const nodes = some.map((row) => make("section", {}, ...heading(row.heading), tiles(found(row).map((item) => rowTile(item, row))), ...left(row.more, "photo")));
  const text = state.filter ? `${lead} The filter shows ${counted(some.flatMap(found).length, "photo")}.` : lead;
  return [some.length || !state.filter ? text : NONE, ...(hasCopies && some.length ? [savers(rows)] : []), ...nodes, ...left(more, "row")];
}

const OTHERS = "others.txt", PAIRS = "not_copies.csv";
const NONE = "Nothing here matches the filter.";
const found = ({ tiles: items }) => items.filter(({ at, kept, query }) => kept !== null || query || isFound(at));
const left = (more, noun) => (more ? [line(`And ${counted(more, `more ${noun}`)}; write a table to see all.`)] : []);

function rowTile({ at, caption, query, kept, pair }, row) {
  const item = tile(at, caption, row.tiles[0].query ? row.tiles[0].at : null);
  item.classList.toggle("query", query);
  if (kept === null) return item;
  const key = pair.join("\n");
  const keep = box("keep", OTHERS, !dropped.has(at), (ticked) => {
    if (ticked) dropped.delete(at);
    else dropped.add(at);
    if (!ticked && apart.has(key)) other.click();
  });
  const other = box("not a copy", PAIRS, apart.has(key), (ticked) => {
    if (ticked) apart.set(key, pair);
    else apart.delete(key);
    if (ticked && dropped.has(at)) keep.click();
  });
  item.append(keep, ...(key ? [other] : []));
  return item;
}

function box(text, list, checked, act) {
  const input = make("input", { type: "checkbox", checked });
  input.onchange = () => (unsaved.add(list), act(input.checked));
  return make("label", {}, input, ` ${text}`);
}

function savers(rows) {
  const quoted = (cell) => `"${cell.replaceAll('"', '""')}"`, code = (textContent) => make("code", { textContent });
  const write = (name, lines, text) => () => {
    save(name, lines());
    unsaved.delete(name);
    document.getElementById("status").textContent = text();
  };
  const none = () => rows.filter(({ tiles: items }) => items.every(({ at }) => dropped.has(at))).length;
  const others = write(OTHERS, () => [...dropped].map((at) => DATA.names[at]),
    () => `${counted(dropped.size, "photo")} listed. ${none() ? `${counted(none(), "group")} would lose all photos.` : "Every group keeps at least one photo."}`);
  const pairs = write(PAIRS, () => [["path", "other"], ...apart.values()].map((pair) => pair.map(quoted).join(",")),
    () => `${counted(apart.size, "pair")} listed.`);
  return make("div", {},
    make("p", { className: "note" }, button("Save the list of unticked photos", others), " Nothing is deleted; ", code("FOLDER#exclude=others.txt"), " skips them."),
    make("p", { className: "note" }, button("Save the pairs that are not copies", pairs), " ", code("mast duplicates FOLDER --not_copies not_copies.csv"), " separates them."));
}
