// Where the page is: everything that is on show follows from the fragment of its address.

const LENGTHS = [5, 10, 20, 50];
/** What restricts a list, each as it is typed; several rules or ids are separated by semicolons. */
const FILTERS = ["where", "at_most", "boost", "allow", "block"];
const NO_FILTERS = Object.fromEntries(FILTERS.map((name) => [name, ""]));
const START = {
  view: "user", user: null, clicks: [], picks: [], item: null, of: MAIN, length: 10, seen: false, compare: false,
  ...NO_FILTERS,
};

/** Returns a string that was escaped for an address, or the string itself where it was not. */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns the state an address stands for; what the address does not say about the other views stays as it was. */
function readRoute(fragment, previous) {
  const fields = new Map(fragment.split("&").filter(Boolean).map((field) => {
    const [name, ...rest] = field.split("=");
    return [name, rest.join("=")];
  }));
  if (fields.has("model")) return { ...previous, view: "model" };
  const text = (name) => (fields.get(name) ? unescaped(fields.get(name)) : null);
  const length = Number.parseInt(fields.get("k"), 10);
  const common = {
    item: text("item"), of: fields.get("of") === "other" ? OTHER : MAIN,
    length: length > 0 ? length : START.length, seen: fields.get("seen") === "1",
    compare: fields.get("compare") === "1",
    ...Object.fromEntries(FILTERS.map((name) => [name, text(name) ?? ""])),
  };
  const keys = (list) => [...new Set((list ?? "").split(",").filter(Boolean).map(unescaped))];
  const picked = fields.get("new-user");
  if (picked === undefined) {
    return { ...previous, ...common, view: "user", user: text("user"), clicks: keys(fields.get("clicks")) };
  }
  return { ...previous, ...common, view: "new-user", picks: keys(picked) };
}

/** Returns the address of a state. */
function writeRoute({ view, user, clicks, picks, item, of, length, seen, compare, ...state }) {
  if (view === "model") return "#model";
  const fields = [];
  const list = (keys) => keys.map(encodeURIComponent).join(",");
  if (view === "new-user") fields.push(`new-user=${list(picks)}`);
  else if (user !== null) fields.push(`user=${encodeURIComponent(user)}`);
  if (view === "user" && user !== null && clicks.length) fields.push(`clicks=${list(clicks)}`);
  if (item !== null) fields.push(`item=${encodeURIComponent(item)}`);
  if (item !== null && of === OTHER) fields.push("of=other");
  if (length !== START.length) fields.push(`k=${length}`);
  if (seen) fields.push("seen=1");
  if (compare) fields.push("compare=1");
  for (const name of FILTERS) if (state[name]) fields.push(`${name}=${encodeURIComponent(state[name])}`);
  return `#${fields.join("&")}`;
}
