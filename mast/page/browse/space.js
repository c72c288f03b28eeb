"use strict";
// Runs in a worker: images in the space that is chosen. N images, R axes, D dimensions of a space.
// It computes what mast/invariance/subspaces.py does, in the axes that mast/invariance/reduced.py
// chose: features whitened by the second moments of what is ignored, then projected onto the axes
// that what is matched moves most.
let data, features, rest, rows; // rows: of each property, the factors (M, R) of its second moment
let space; // {vectors (N, D), size: D, squares (N): their squared lengths}
const ROUNDS = 8;

const decoded = (text, kind) => new kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

function scaled(whole, scales, columns) {
  return Float32Array.from(whole, (value, at) => value * scales[at % columns]);
}

// The sum of squared factors (R, R) and their whole trace, over some properties.
function secondMoment(names) {
  const { axes } = data, sum = new Float64Array(axes * axes);
  let trace = 0;
  for (const name of names) {
    trace += data.properties[name].trace;
    const of = rows[name];
    for (let start = 0; start < of.length; start += axes) {
      for (let i = 0; i < axes; i++) {
        const left = of[start + i];
        for (let j = 0; j <= i; j++) sum[i * axes + j] += left * of[start + j];
      }
    }
  }
  return { sum, trace };
}

// The lower triangle of the Cholesky factor of a symmetric (n, n) matrix, in its place.
function cholesky(matrix, n) {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let left = matrix[i * n + j];
      for (let k = 0; k < j; k++) left -= matrix[i * n + k] * matrix[j * n + k];
      matrix[i * n + j] = i === j ? Math.sqrt(left) : left / matrix[j * n + j];
    }
  }
  return matrix;
}

// Rows (M, n) multiplied from the left by the inverse of a factor, times a number.
function whitened(values, factor, n, times) {
  const out = new Float32Array(values.length);
  for (let start = 0; start < values.length; start += n) {
    for (let i = 0; i < n; i++) {
      let left = values[start + i] * times;
      for (let k = 0; k < i; k++) left -= factor[i * n + k] * out[start + k];
      out[start + i] = left / factor[i * n + i];
    }
  }
  return out;
}

// The leading right singular vectors (count, n) of rows (M, n): subspace iteration, Rayleigh-Ritz.
function leading(values, n, count) {
  const block = Math.min(n, count + 8), found = new Float64Array(block * n);
  let seed = 1;
  for (let at = 0; at < found.length; at++) {
    seed = (seed * 16807) % 2147483647;
    found[at] = seed / 2147483647 - 0.5;
  }
  const along = new Float64Array(block);
  const each = (act) => { // of each row, its products with the vectors found so far
    for (let start = 0; start < values.length; start += n) {
      for (let b = 0; b < block; b++) {
        let dot = 0;
        for (let i = 0; i < n; i++) dot += found[b * n + i] * values[start + i];
        along[b] = dot;
      }
      act(start);
    }
  };
  for (let round = 0; round < ROUNDS; round++) {
    const next = new Float64Array(block * n);
    orthonormal(found, n);
    each((start) => {
      for (let b = 0; b < block; b++) {
        for (let i = 0; i < n; i++) next[b * n + i] += along[b] * values[start + i];
      }
    });
    found.set(next);
  }
  orthonormal(found, n);
  const small = new Float64Array(block * block);
  each(() => {
    for (let b = 0; b < block; b++) {
      for (let c = 0; c < block; c++) small[b * block + c] += along[b] * along[c];
    }
  });
  const turns = eigenvectors(small, block), out = new Float32Array(count * n);
  for (let at = 0; at < Math.min(count, block); at++) {
    for (let b = 0; b < block; b++) {
      for (let i = 0; i < n; i++) out[at * n + i] += turns[at][b] * found[b * n + i];
    }
  }
  return out;
}

// The eigenvectors of a small symmetric matrix, which is lost, by Jacobi; the largest first.
function eigenvectors(matrix, n) {
  const vectors = Array.from({ length: n }, (_, i) => Float64Array.from({ length: n }, (_, j) => +(i === j)));
  for (let sweep = 0; sweep < 12; sweep++) {
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (Math.abs(matrix[p * n + q]) < 1e-300) continue;
        const turn = (matrix[q * n + q] - matrix[p * n + p]) / (2 * matrix[p * n + q]);
        const tangent = (turn < 0 ? -1 : 1) / (Math.abs(turn) + Math.hypot(1, turn));
        const c = 1 / Math.hypot(1, tangent), s = c * tangent;
        for (let k = 0; k < n; k++) {
          const left = matrix[k * n + p], right = matrix[k * n + q];
          matrix[k * n + p] = c * left - s * right;
          matrix[k * n + q] = s * left + c * right;
        }
        for (let k = 0; k < n; k++) {
          const left = matrix[p * n + k], right = matrix[q * n + k];
          matrix[p * n + k] = c * left - s * right;
          matrix[q * n + k] = s * left + c * right;
          const one = vectors[p][k], other = vectors[q][k];
          vectors[p][k] = c * one - s * other;
          vectors[q][k] = s * one + c * other;
        }
      }
    }
  }
  const value = (at) => matrix[at * n + at];
  return [...vectors.keys()].sort((p, q) => value(q) - value(p)).map((at) => vectors[at]);
}

// Gram-Schmidt, twice; rows that vanish become zero.
function orthonormal(vectors, n) {
  for (let row = 0; row < vectors.length; row += n) {
    for (let pass = 0; pass < 2; pass++) {
      for (let other = 0; other < row; other += n) {
        let dot = 0;
        for (let i = 0; i < n; i++) dot += vectors[row + i] * vectors[other + i];
        for (let i = 0; i < n; i++) vectors[row + i] -= dot * vectors[other + i];
      }
      let size = 0;
      for (let i = 0; i < n; i++) size += vectors[row + i] ** 2;
      size = size > 1e-30 ? Math.sqrt(size) : Infinity;
      for (let i = 0; i < n; i++) vectors[row + i] /= size;
    }
  }
}

// Where images are compared: `ignored` and `matched` are names of properties.
function choose(ignored, matched) {
  const { axes, dims, properties, images } = data;
  const dropped = matched.length
    ? Object.keys(properties).filter((name) => !matched.includes(name))
    : ignored;
  let vectors = features, size = axes;
  if (dropped.length) {
    const { sum, trace } = secondMoment(dropped);
    const floor = ((matched.length ? data.ridgeToMatch : data.ridge) * trace) / dims;
    for (let i = 0; i < axes; i++) sum[i * axes + i] += floor;
    const factor = cholesky(sum, axes);
    vectors = whitened(features, factor, axes, Math.sqrt(floor));
    if (matched.length) vectors = projected(vectors, matched.map((name) => whitened(rows[name], factor, axes, Math.sqrt(floor))));
  } else if (matched.length) vectors = projected(features, matched.map((name) => rows[name]));
  if (matched.length) size = data.matched;
  const squares = new Float32Array(images);
  for (let at = 0; at < images; at++) {
    let square = matched.length ? 0 : rest[at];
    for (let i = at * size; i < (at + 1) * size; i++) square += vectors[i] ** 2;
    squares[at] = square;
  }
  space = { vectors, size, squares };
}

// Vectors (N, R) along the axes (matched, R) that factors move most.
function projected(vectors, factors) {
  const { axes, images, matched } = data;
  const all = new Float32Array(factors.reduce((count, each) => count + each.length, 0));
  factors.reduce((at, each) => (all.set(each, at), at + each.length), 0);
  const kept = leading(all, axes, matched), out = new Float32Array(images * matched);
  for (let at = 0; at < images; at++) {
    for (let m = 0; m < matched; m++) {
      let dot = 0;
      for (let i = 0; i < axes; i++) dot += vectors[at * axes + i] * kept[m * axes + i];
      out[at * matched + m] = dot;
    }
  }
  return out;
}

// The nearest of an image by cosine, itself first: [[position, cosine], …].
function nearest(query, count) {
  const { vectors, size, squares } = space, found = [];
  for (let at = 0; at < squares.length; at++) {
    let dot = 0;
    for (let i = 0; i < size; i++) dot += vectors[query * size + i] * vectors[at * size + i];
    found.push([at, dot / (Math.sqrt(squares[query] * squares[at]) || 1)]);
  }
  found[query][1] = Infinity;
  found.sort((one, other) => other[1] - one[1] || one[0] - other[0]);
  found[0][1] = 1;
  return found.slice(0, count);
}

// Two numbers in [0, 1] for each image: the leading axes of directions from their mean.
function map() {
  const { vectors, size, squares } = space, images = squares.length;
  const centered = new Float32Array(vectors.length), mean = new Float64Array(size);
  for (let at = 0; at < images; at++) {
    const length = Math.sqrt(squares[at]) || 1;
    for (let i = 0; i < size; i++) mean[i] += (centered[at * size + i] = vectors[at * size + i] / length) / images;
  }
  for (let at = 0; at < centered.length; at++) centered[at] -= mean[at % size];
  const axes = leading(centered, size, 2), places = [0, 1].map(() => new Float32Array(images));
  for (let axis = 0; axis < 2; axis++) {
    for (let at = 0; at < images; at++) {
      for (let i = 0; i < size; i++) places[axis][at] += centered[at * size + i] * axes[axis * size + i];
    }
    const sorted = Float32Array.from(places[axis]).sort();
    const [low, high] = [0.01, 0.99].map((share) => sorted[Math.floor(share * (images - 1))]);
    places[axis] = places[axis].map((x) => Math.min(1, Math.max(0, (x - low) / (high - low || 1))));
  }
  return places;
}

const ACTIONS = { choose, nearest, map };
self.onmessage = ({ data: { number, name, values } }) => {
  if (name === "open") {
    data = values[0];
    const scales = decoded(data.scales, Float32Array);
    features = scaled(decoded(data.features, Int8Array), scales, data.axes);
    rest = decoded(data.rest, Float32Array);
    rows = {};
    for (const [property, { factors, factorScales }] of Object.entries(data.properties)) {
      rows[property] = scaled(decoded(factors, Int8Array), decoded(factorScales, Float32Array), data.axes);
    }
  }
  self.postMessage({ number, found: ACTIONS[name]?.(...values) });
};
