"use strict";
// Groups of copies: what to keep is ticked, two are seen side by side with their difference.
const kept = new Set(DATA.copies.map(([first]) => first.at));

function copiesView() {
  const groups = DATA.copies.filter((group) => group.some(({ at }) => found(at)));
  const button = make("button", { type: "button", textContent: "Save the list of the others" });
  button.onclick = () => {
    const others = DATA.copies.flat().filter(({ at }) => !kept.has(at));
    save("others.txt", others.map(({ at }) => `${DATA.names[at]}\n`).join(""));
  };
  const about = line("Ticked photos stay. FOLDER#exclude=others.txt leaves the others out. ");
  about.append(button);
  return [about, ...groups.map((group) => make("section", {}, make("h3", { textContent: heading(group) }), copies(group)))];
}

const heading = (group) => `${group[1].level}: ${DATA.names[group[0].at]}`;

function copies(group) {
  const list = make("ul", { className: "tiles" });
  for (const { at, level, changes } of group) {
    const item = tile(at, [level, changes].filter(Boolean).join(": "));
    const box = make("input", { type: "checkbox", checked: kept.has(at) });
    box.onchange = () => (box.checked ? kept.add(at) : kept.delete(at));
    item.append(make("label", {}, box, " keep"));
    item.firstChild.dataset.beside = group[0].at;
    list.append(item);
  }
  return list;
}

function compare(first, second) {
  const dialog = document.getElementById("compare");
  const figure = (node, text) => make("figure", {}, node, make("figcaption", { textContent: text }));
  const both = make("div", { className: "difference" }, picture(first), picture(second));
  dialog.querySelector("div").replaceChildren(
    figure(picture(first), DATA.names[first]),
    figure(picture(second), DATA.names[second]),
    figure(both, "difference"),
  );
  dialog.showModal();
}
