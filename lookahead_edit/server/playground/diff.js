// A unified diff, shown side by side.
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

// Rows of {kind: "gap" | "same" | "changed", left, right}; a side is {number, text} or null.
function diffRows(diff) {
  const rows = [];
  let removed = [];
  let added = [];
  let left = 0;
  let right = 0;
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      rows.push({ kind: "changed", left: removed[index] ?? null, right: added[index] ?? null });
    }
    removed = [];
    added = [];
  };
  let isInHunk = false;
  for (const line of diff.split("\n")) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      flush();
      [left, right] = [Number(hunk[1]), Number(hunk[2])];
      rows.push({ kind: "gap", text: `line ${right}` });
      isInHunk = true;
    } else if (isInHunk && line.startsWith("-")) {
      removed.push({ number: left, text: line.slice(1) });
      left += 1;
    } else if (isInHunk && line.startsWith("+")) {
      added.push({ number: right, text: line.slice(1) });
      right += 1;
    } else if (isInHunk && line.startsWith(" ")) {
      flush();
      const text = line.slice(1);
      rows.push({ kind: "same", left: { number: left, text }, right: { number: right, text } });
      left += 1;
      right += 1;
    }
  }
  flush();
  return rows;
}

// Parts of a line that are marked as a whole: words, and single signs.
function unitsOf(line) {
  return line.match(/[\p{L}\p{N}_]+|./gsu) ?? [];
}

// How many characters the two lines begin and end with in common.
function commonEnds(leftLine, rightLine) {
  const left = unitsOf(leftLine);
  const right = unitsOf(rightLine);
  const limit = Math.min(left.length, right.length);
  let start = 0;
  while (start < limit && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < limit - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  return [left.slice(0, start).join("").length, left.slice(left.length - end).join("").length];
}

function visibleLine(text) {
  return text.replace(/\r$/, "");
}

function diffSide(side, other, className) {
  if (!side) return [make("span", { className: "number none" }), make("span", { className: `none ${className}-none` })];
  const text = visibleLine(side.text);
  const cell = make("span", { className });
  if (other && className !== "same") {
    const [start, end] = commonEnds(text, visibleLine(other.text));
    const middle = text.slice(start, text.length - end);
    cell.append(text.slice(0, start));
    if (middle) cell.append(make("mark", { text: middle }));
    cell.append(text.slice(text.length - end));
  } else {
    cell.textContent = text;
  }
  return [make("span", { className: "number", text: String(side.number) }), cell];
}

function drawDiff(container, diff) {
  const drawn = diffRows(diff).map((row) => {
    if (row.kind === "gap") return make("div", { className: "diff-gap", text: row.text });
    const isSame = row.kind === "same";
    const left = diffSide(row.left, row.right, isSame ? "same" : "removed");
    const right = diffSide(row.right, row.left, isSame ? "same" : "added");
    left.forEach((cell) => cell.classList.add("left"));
    return make("div", { className: isSame ? "diff-row same" : "diff-row", children: [...left, ...right] });
  });
  container.replaceChildren(...drawn);
}
