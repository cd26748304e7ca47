// Elements and words: everything that comes from data enters the page through here, as text.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const REDUCED_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
const WIDE = matchMedia("(min-width: 1080px)"); // three columns
const LONG_NAME = 60; // letters beyond which a name may be cut off, so that its whole is put at hand
const SINGLE = matchMedia("(max-width: 719.98px)"); // one column

/** Returns the element of this page with the given id. */
const byId = (id) => document.getElementById(id);

/**
 * Returns a new element. Children are elements or strings, empty ones left out; `on...` attributes are listeners,
 * `variables` are custom properties for the style, and an attribute that is null or false is not set.
 */
function make(tag, attributes = {}, ...children) {
  const svg = tag.startsWith("svg:");
  const element = svg ? document.createElementNS(SVG_NAMESPACE, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "variables") Object.entries(value).forEach(([key, number]) => element.style.setProperty(key, number));
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  const absent = [null, undefined, false];
  element.append(...children.flat(Infinity).filter((child) => !absent.includes(child)));
  return element;
}

/** Returns a button that does something on this page. */
const button = (text, onclick, attributes = {}) =>
  make("button", { type: "button", class: "button", onclick, ...attributes }, text);

/** Returns what to call an item: its title where there is one, its id otherwise. */
const nameOf = (item) => (typeof item.title === "string" && item.title.trim() ? item.title : String(item.item_id));

/** Returns the name of an item as an element that keeps its own writing direction. */
function nameElement(item) {
  const name = nameOf(item);
  return make("bdi", { class: "name", dir: "auto", title: name.length > LONG_NAME && name }, name);
}

/** Returns the id of an item as small print, or nothing where the id already serves as its name. */
function idElement(item) {
  const id = String(item.item_id);
  return nameOf(item) === id ? null : make("bdi", { class: "id" }, id);
}

/** Returns a value of an attribute as text. */
const attributeText = (value) =>
  (Array.isArray(value) ? value.join(", ") : typeof value === "boolean" ? (value ? "yes" : "no") : String(value));

/** Returns the attributes of an item that are known, as one line of small print, or nothing. */
function attributesElement(item) {
  const known = Object.entries(item.attributes ?? {}).filter(([, value]) => value !== null && value.length !== 0);
  if (!known.length) return null;
  return make("span", { class: "attributes" }, known.map(([name, value]) =>
    make("span", { class: "attribute" }, make("span", { class: "attribute-name" }, name), " ",
      make("bdi", {}, attributeText(value)))));
}

/** Returns a string that tells ids apart; ids of one column are all of one type. */
const keyOf = (id) => String(id);

/** Returns 14,188 for 14188. */
const count = (number) => Number(number).toLocaleString("en");

/** Returns "1 item" or "3 items". */
const counted = (number, noun) => `${count(number)} ${noun}${Number(number) === 1 ? "" : "s"}`;

/** Returns how many decimals show four digits of the largest of these values; none for integers. */
function decimalsOf(values) {
  if (values.every(Number.isInteger)) return 0;
  const largest = Math.max(...values.map((value) => Math.abs(value)).filter(Number.isFinite), 0);
  return largest === 0 ? 2 : Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(largest))));
}

/** Returns a number with a real minus sign, and with a plus sign when `signed`. */
function decimal(value, decimals, signed = false) {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value).toFixed(decimals);
  const sign = Number(digits) === 0 ? "" : value < 0 ? "−" : signed ? "+" : "";
  return sign + digits;
}

/** Returns a number as text for people that also carries its whole value. */
const numberElement = (value, decimals, signed = false) =>
  make("data", { class: "number", value: String(value) }, decimal(value, decimals, signed));

/** Returns a text of the service as a sentence. */
const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "");

/** Says something to those who listen to the page. */
const announce = (text) => byId("status").replaceChildren(text);

/** Lets the arrow keys, Home and End move the focus through the buttons that match `selector` inside `container`. */
function moveWithArrows(container, selector) {
  container.addEventListener("keydown", (event) => {
    const stops = [...container.querySelectorAll(selector)];
    const at = stops.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: stops.length - 1 }[event.key];
    // A list may lie within another, whose buttons are among its own: the inner one has moved already.
    if (event.defaultPrevented || at < 0 || next === undefined || !stops[next]) return;
    event.preventDefault();
    stops[next].focus();
  });
}
