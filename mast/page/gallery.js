"use strict";
// Writes the pairs that are ticked as a table, which `mast duplicates --not_copies` reads.
document.getElementById("not-copies").addEventListener("click", () => {
  const quoted = (cell) => `"${cell.replaceAll('"', '""')}"`;
  const rows = [["path", "other"]];
  for (const { dataset } of document.querySelectorAll("input[data-path]:checked")) {
    rows.push([dataset.path, dataset.other]);
  }
  const text = rows.map((row) => row.map(quoted).join(",") + "\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "not_copies.csv";
  link.click();
});
