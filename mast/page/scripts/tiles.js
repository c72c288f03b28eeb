"use strict";
// Photos as buttons; each shows its part of a sheet of a hundred.
const make = (tag, values = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), values);
  node.append(...children);
  return node;
};
const button = (textContent, onclick, name = "") => make("button", { type: "button", textContent, onclick, name });
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

function picture(at) {
  const place = at % 100, node = make("i", { className: `sheet-${Math.floor(at / 100)}` });
  node.style.backgroundPosition = `${((place % 10) * 100) / 9}% ${(Math.floor(place / 10) * 100) / 9}%`;
  return node;
}

// A photo with its name and a caption; `beside` is the photo that a click compares it with.
function tile(at, caption = null, beside = null) {
  const name = DATA.names[at], photo = make("button", { type: "button", className: "tile", title: name }, picture(at));
  photo.setAttribute("aria-label", [name, DATA.labels[at], caption].filter(Boolean).join(", "));
  photo.dataset.at = at;
  if (beside !== null) photo.dataset.beside = beside;
  const texts = caption === null ? [] : [make("span", { className: "name", textContent: name }), make("span", { textContent: caption })];
  return make("li", {}, photo, ...texts);
}

const tiles = (items) => make("ul", { className: "tiles" }, ...items);
const line = (text) => make("p", { className: "note", textContent: text });

function save(name, lines) {
  const blob = new Blob(lines.map((each) => `${each}\n`), { type: "text/plain" });
  make("a", { href: URL.createObjectURL(blob), download: name }).click();
}

// Two photos and the difference of their thumbnails, or one photo.
function compare(first, second) {
  const figure = (text, ...pictures) => make("figure", {}, make("div", {}, ...pictures), make("figcaption", { textContent: text }));
  const one = (at) => figure(DATA.names[at], picture(at));
  const dialog = document.getElementById("compare");
  dialog.querySelector("div").replaceChildren(one(first), ...(first === second ? [] : [one(second), figure("difference (photos not aligned)", picture(first), picture(second))]));
  dialog.showModal();
}
