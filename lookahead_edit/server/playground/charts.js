// Small line charts.
const SVG = "http://www.w3.org/2000/svg";
const MAX_POINTS = 120;

// Gaps where a value is null. The scale begins at 0; `top` is its end, else a little above the largest value.
function drawSpark(svg, values, top) {
  const shown = values.slice(-MAX_POINTS);
  const width = 300;
  const height = 60;
  const margin = 4;
  const largest = top ?? 1.1 * Math.max(1e-9, ...shown.filter(isNumber));
  const x = (index) => (shown.length < 2 ? width / 2 : margin + (index * (width - 2 * margin)) / (shown.length - 1));
  const y = (value) => height - margin - ((height - 2 * margin) * Math.min(value, largest)) / largest;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  let path = "";
  let isDrawing = false;
  shown.forEach((value, index) => {
    if (isNumber(value)) path += `${isDrawing ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    isDrawing = isNumber(value);
  });
  const line = document.createElementNS(SVG, "path");
  // A single point would have no length, and not be seen.
  line.setAttribute("d", shown.filter(isNumber).length === 1 ? `${path}m-6 0h12` : path);
  svg.replaceChildren(line);
}
