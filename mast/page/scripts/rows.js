"use strict";
// Rows of what was found. Of copies, those that stay and those that are none are ticked.
const dropped = new Set(); // copies that do not stay
const apart = new Map(); // pairs that are no copies, by their boxes' places
DATA.views.filter(({ copies }) => copies).forEach(({ rows }) => rows.forEach(({ tiles: [, ...others] }) => others.forEach(({ at }) => dropped.add(at))));

function rowsView({ lead, rows, more, copies }) {
  const some = rows.filter(({ tiles: items }) => items.some(({ at }) => isFound(at)));
  return [
    line(lead),
    ...(copies ? [savers()] : []),
    ...some.map((row) => make("section", {}, make("h3", { textContent: row.heading }), tiles(row.tiles.map((item) => rowTile(item, row, copies))), ...left(row.more, "photos"))),
    ...left(more, "rows"),
  ];
}

const left = (more, of) => (more ? [line(`And ${more.toLocaleString("en")} more ${of}; write a table to see them.`)] : []);

function rowTile({ at, caption, query, pair }, row, copies) {
  const item = tile(at, caption, row.tiles[0].at);
  item.classList.toggle("query", query);
  if (copies) item.append(box("stays", !dropped.has(at), (ticked) => (ticked ? dropped.delete(at) : dropped.add(at))));
  const key = pair.join("\n");
  if (key) item.append(box("not a copy", apart.has(key), (ticked) => (ticked ? apart.set(key, pair) : apart.delete(key))));
  return item;
}

function box(text, checked, act) {
  const input = make("input", { type: "checkbox", checked });
  input.onchange = () => act(input.checked);
  return make("label", {}, input, ` ${text}`);
}

function savers() {
  const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick });
  const quoted = (cell) => `"${cell.replaceAll('"', '""')}"`;
  return make("p", { className: "note" },
    button("Save what does not stay", () => save("others.txt", [...dropped].map((at) => DATA.names[at]))),
    " for FOLDER#exclude=others.txt. ",
    button("Save the pairs that are not copies", () => save("not_copies.csv", [["path", "other"], ...apart.values()].map((pair) => pair.map(quoted).join(",")))),
    " for mast duplicates --not_copies not_copies.csv.");
}
