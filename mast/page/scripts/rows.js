"use strict";
// Rows of what was found. Of copies, the user ticks which to keep and which are not copies.
const dropped = new Set(); // positions of the copies that are not kept
const apart = new Map(); // pairs of names that are not copies
for (const { rows } of DATA.views) for (const { tiles: items } of rows) for (const { at, kept } of items) if (kept === false) dropped.add(at);

function rowsView({ lead, rows, more }) {
  const hasCopies = rows.some(({ tiles: items }) => items.some(({ kept }) => kept !== null));
  const some = rows.filter(({ tiles: items }) => items.some(({ at }) => isFound(at)));
  const heading = (text) => (text ? [make("h2", { textContent: text })] : []);
  const nodes = some.map((row) => make("section", {}, ...heading(row.heading), tiles(row.tiles.map((item) => rowTile(item, row))), ...left(row.more, "photo")));
  return [some.length || !state.filter ? lead : NONE, ...(hasCopies ? [savers()] : []), ...nodes, ...left(more, "row")];
}

const NONE = "No photo has this name or label.";
const left = (more, noun) => (more ? [line(`And ${counted(more, `more ${noun}`)}; write a table to see all.`)] : []);

function rowTile({ at, caption, query, kept, pair }, row) {
  const item = tile(at, caption, row.tiles[0].query ? row.tiles[0].at : null);
  item.classList.toggle("query", query);
  if (kept === null) return item;
  const keep = box("keep", !dropped.has(at), (ticked) => (ticked ? dropped.delete(at) : dropped.add(at)));
  item.append(keep);
  const key = pair.join("\n");
  if (key) item.append(box("not a copy", apart.has(key), (ticked) => {
    if (ticked) apart.set(key, pair);
    else apart.delete(key);
    if (ticked && dropped.has(at)) keep.click();
  }));
  return item;
}

function box(text, checked, act) {
  const input = make("input", { type: "checkbox", checked });
  input.onchange = () => act(input.checked);
  return make("label", {}, input, ` ${text}`);
}

function savers() {
  const quoted = (cell) => `"${cell.replaceAll('"', '""')}"`;
  return make("p", { className: "note" },
    button("Save the photos that are not kept", () => save("others.txt", [...dropped].map((at) => DATA.names[at]))),
    " FOLDER#exclude=others.txt leaves them out. ",
    button("Save the pairs that are not copies", () => save("not_copies.csv", [["path", "other"], ...apart.values()].map((pair) => pair.map(quoted).join(",")))),
    " mast duplicates FOLDER --not_copies not_copies.csv separates them.");
}
