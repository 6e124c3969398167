// Puts tables in columns: each stands to the right of all from which it is computed.

// Takes [{output, sources}], and returns the names in columns. Tables may be computed from each other.
export function layers(edges) {
  const depth = new Map();
  for (const {output, sources} of edges) for (const name of [output, ...sources]) depth.set(name, 0);
  for (let round = 0; round < depth.size; round++) {
    let isDone = true;
    for (const {output, sources} of edges) {
      const wanted = 1 + Math.max(...sources.filter((name) => name !== output).map((name) => depth.get(name)), 0);
      if (wanted > depth.get(output) && wanted < depth.size) {
        depth.set(output, wanted);
        isDone = false;
      }
    }
    if (isDone) break;
  }
  const columns = [];
  for (const [name, at] of depth) (columns[at] ??= []).push(name);
  return inOrder(
    columns.filter((column) => column),
    edges,
  );
}

// Orders each column by the places of what its tables are computed from, so that fewer lines cross.
function inOrder(columns, edges) {
  const place = new Map(columns[0].sort().map((name, at) => [name, at]));
  for (const column of columns.slice(1)) {
    const middle = (name) => {
      const from = edges.filter(({output}) => output === name).flatMap(({sources}) => sources);
      const known = from.map((source) => place.get(source)).filter((at) => at !== undefined);
      return known.reduce((sum, at) => sum + at, 0) / Math.max(1, known.length);
    };
    column.sort((one, other) => middle(one) - middle(other) || (one < other ? -1 : 1));
    column.forEach((name, at) => place.set(name, at));
  }
  return columns;
}
