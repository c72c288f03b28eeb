"use strict";
// Runs in a worker: the nearest photos under any choice. mast/search/reduced.py says what the numbers
// are. N photos, R axes, M rows of a factor, J axes of a match; a choice is a number with a bit for
// each property.
const ROUNDS = 300, ACCURACY = 1e-4; // of the squared residual
let opened, matched = { choice: 0 };

async function unpacked(text, kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new kind(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
}

// Rows of numbers from rows of integers, and what each row is multiplied by.
async function restored([text, scales], kind) {
  const values = Float32Array.from(await unpacked(text, kind)), scale = await unpacked(scales, Float32Array);
  const columns = values.length / scale.length;
  scale.forEach((times, row) => {
    for (let at = row * columns; at < (row + 1) * columns; at++) values[at] *= times;
  });
  return values;
}

async function open({ axes, features, properties, lengths, maps, places }) {
  const factors = Object.values(properties).map(async ({ factor, floor }) => ({ floor, rows: await restored(factor, Int8Array) }));
  const fine = await restored(features.slice(0, 2), Int16Array), rest = await restored(features.slice(2), Int8Array);
  const values = new Float32Array(fine.length + rest.length);
  values.set(fine);
  values.set(rest, fine.length);
  return {
    axes, photos: values.length / axes, choices: 2 ** factors.length, values,
    factors: await Promise.all(factors),
    lengths: await unpacked(lengths, Float32Array),
    maps: await restored(maps, Int8Array),
    places: await unpacked(places, Uint8Array),
  };
}

// The sum of products with the numbers from a place on; four sums, as one would wait for itself.
function dot(values, start, vector) {
  const count = vector.length - (vector.length % 4);
  let a = 0, b = 0, c = 0, d = 0;
  for (let r = 0; r < count; r += 4) {
    const at = start + r;
    a += values[at] * vector[r];
    b += values[at + 1] * vector[r + 1];
    c += values[at + 2] * vector[r + 2];
    d += values[at + 3] * vector[r + 3];
  }
  for (let r = count; r < vector.length; r++) a += values[start + r] * vector[r];
  return a + b + c + d;
}

// What is left of a query: floor (W + floor)^-1 of its features, by conjugate gradients, where W is
// the second moment of what is ignored.
function whitened(query_R, parts) {
  const floor = parts.reduce((sum, part) => sum + part.floor, 0), axes = query_R.length;
  const left = new Float64Array(axes), residual = query_R.map((value) => value * floor), step = Float64Array.from(residual);
  const squared = (vector) => vector.reduce((sum, value) => sum + value * value, 0);
  let size = squared(residual);
  for (let round = 0, goal = size * ACCURACY; round < ROUNDS && size > goal; round++) {
    const moved = step.map((value) => value * floor);
    for (const { rows } of parts) {
      for (let at = 0; at < rows.length; at += axes) {
        const along = dot(rows, at, step);
        for (let r = 0; r < axes; r++) moved[r] += along * rows[at + r];
      }
    }
    let curve = 0;
    for (let r = 0; r < axes; r++) curve += step[r] * moved[r];
    const rate = size / curve;
    for (let r = 0; r < axes; r++) {
      left[r] += rate * step[r];
      residual[r] -= rate * moved[r];
    }
    const before = size;
    size = squared(residual);
    for (let r = 0; r < axes; r++) step[r] = residual[r] + (size / before) * step[r];
  }
  return left;
}

// Sums over the axes (…, N) of features times numbers (…, R).
function projected(rows, weight) {
  const { axes, photos, values } = opened;
  const sums = Array.from({ length: rows }, () => new Float64Array(photos));
  for (let first = 0; first < axes; first += 4) { // four axes at once: sums are read and written less
    const four = [0, 1, 2, 3].map((k) => Math.min(first + k, axes - 1));
    const [a, b, c, d] = four.map((r) => values.subarray(r * photos, (r + 1) * photos));
    for (let row = 0; row < rows; row++) {
      const [p, q, s, t] = four.map((r, k) => (first + k < axes ? weight(row, r) : 0));
      const into = sums[row];
      for (let n = 0; n < photos; n++) into[n] += p * a[n] + q * b[n] + s * c[n] + t * d[n];
    }
  }
  return sums;
}

// Directions of all photos (J, N) by what is matched.
function directions(choice) {
  const { axes, choices, maps, photos } = opened;
  const rows = maps.length / axes / (choices - 1), first = (choice - 1) * rows;
  const along = projected(rows, (row, r) => maps[(first + row) * axes + r]);
  for (let n = 0; n < photos; n++) {
    const length = Math.hypot(...along.map((row) => row[n])) || 1;
    for (const row of along) row[n] /= length;
  }
  return along;
}

// All other photos and their cosines, the nearest first.
function nearest(query, ignored, match) {
  const { axes, photos, values, factors, lengths } = opened;
  let cosine;
  if (match) {
    if (matched.choice !== match) matched = { choice: match, along: directions(match) };
    cosine = new Float32Array(photos);
    for (const row of matched.along) row.forEach((value, n) => (cosine[n] += value * row[query]));
  } else {
    const own = Float64Array.from({ length: axes }, (_, r) => values[r * photos + query]);
    const parts = factors.filter((_, at) => (ignored >> at) & 1), left = parts.length ? whitened(own, parts) : own;
    const length = lengths.subarray(ignored * photos, (ignored + 1) * photos);
    cosine = projected(1, (_, r) => left[r])[0].map((dot, n) => Math.min(1, dot / (length[query] * length[n] || 1)));
  }
  const others = Array.from(cosine, (value, n) => [n, value]).filter(([n]) => n !== query);
  return others.sort((one, other) => other[1] - one[1] || one[0] - other[0]);
}

function map(ignored, match) {
  const { choices, places } = opened, count = places.length / (2 * choices - 1);
  const at = match ? choices + match - 1 : ignored;
  return places.subarray(at * count, (at + 1) * count);
}

let queue = Promise.resolve(); // one request after the other
self.onmessage = ({ data: { number, name, values } }) => {
  const act = async () => {
    if (name === "open") opened = await open(...values);
    self.postMessage({ number, found: name === "open" ? null : { nearest, map }[name](...values) });
  };
  queue = queue.then(act).catch((error) => self.postMessage({ number, error: String(error) }));
};
