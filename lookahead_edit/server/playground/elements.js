// What every part of the page uses: elements by id, new elements, numbers as text. Text is only ever set as text.
"use strict";

const byId = (id) => document.getElementById(id);

function make(name, { text, className, title, children } = {}) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  if (title) element.title = title;
  if (children) element.append(...children);
  return element;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const shownCount = (value) => (isNumber(value) ? value.toLocaleString("en") : "–");
// 100 % is said of all, never of nearly all.
const shownRate = (value) => (isNumber(value) ? `${value < 1 ? Math.min(99, Math.round(100 * value)) : 100} %` : "–");
const shownNumber = (value) => (isNumber(value) ? value.toFixed(value < 100 ? 1 : 0) : "–");
const shownSeconds = (value) => (isNumber(value) ? value.toFixed(value < 10 ? 2 : 1) : "–");

const SOURCES = {
  file: "copied from the file",
  prediction: "from the prediction",
  prompt: "from the prompt",
  output: "from the answer itself",
  context: "from other files",
  model: "guessed by the model",
  own: "the model's own",
};
