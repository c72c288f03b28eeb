"use strict";
// Photos as buttons: each shows a part of a sheet of a hundred.
const make = (tag, values = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), values);
  node.append(...children);
  return node;
};

function tile(at, caption = "") {
  const button = make("button", { type: "button", className: "tile", title: DATA.names[at] });
  const label = DATA.labels?.[at];
  button.setAttribute("aria-label", [DATA.names[at], label, caption].filter(Boolean).join(", "));
  button.setAttribute("aria-pressed", String(state.query === at));
  button.dataset.at = at;
  button.append(picture(at));
  return make("li", {}, button, ...(caption ? [make("span", { textContent: caption })] : []));
}

function picture(at) {
  const sheet = Math.floor(at / 100), place = at % 100;
  const node = make("i", { className: `sheet-${sheet}` });
  node.style.backgroundPosition = `${(place % 10) * (100 / 9)}% ${Math.floor(place / 10) * (100 / 9)}%`;
  return node;
}

const tiles = (positions, caption = () => "") => {
  const list = make("ul", { className: "tiles" });
  list.append(...positions.map((at) => tile(at, caption(at))));
  return list;
};

const line = (text) => make("p", { className: "note", role: "status", textContent: text });

function save(name, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
  link.click();
}
