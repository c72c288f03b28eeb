"use strict";
// Asks for the parts of the page every two seconds, and replaces those that changed.
const shown = new Map();
async function refresh() {
  let answered = false;
  try {
    const answer = await fetch("parts.json", { cache: "no-store" });
    answered = answer.ok;
    if (answered) {
      for (const [id, html] of Object.entries(await answer.json())) {
        if (shown.get(id) === html) continue;
        const part = document.getElementById(id);
        const left = part.querySelector(".plot")?.scrollLeft;
        part.innerHTML = html; // of our own server, which escapes what files say
        if (left) part.querySelector(".plot").scrollLeft = left;
        shown.set(id, html);
      }
    }
  } catch {
    answered = false; // nobody listens any more, which is said below
  }
  document.getElementById("lost").hidden = answered;
  setTimeout(refresh, 2000);
}
setTimeout(refresh, 2000);
