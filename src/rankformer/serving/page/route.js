// Where the page is: everything that is on show follows from the fragment of its address.

const LENGTHS = [5, 10, 20, 50];
const START = { view: "user", user: null, picks: [], item: null, length: 10, seen: false, where: "" };

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
    item: text("item"), length: length > 0 ? length : START.length, seen: fields.get("seen") === "1",
    where: text("where") ?? "",
  };
  const picked = fields.get("new-user") ?? fields.get("made-up"); // the name in older addresses
  if (picked === undefined) return { ...previous, ...common, view: "user", user: text("user") };
  const picks = picked.split(",").filter(Boolean).map(unescaped);
  return { ...previous, ...common, view: "new-user", picks: [...new Set(picks)] };
}

/** Returns the address of a state. */
function writeRoute({ view, user, picks, item, length, seen, where }) {
  if (view === "model") return "#model";
  const fields = [];
  if (view === "new-user") fields.push(`new-user=${picks.map(encodeURIComponent).join(",")}`);
  else if (user !== null) fields.push(`user=${encodeURIComponent(user)}`);
  if (item !== null) fields.push(`item=${encodeURIComponent(item)}`);
  if (length !== START.length) fields.push(`k=${length}`);
  if (seen) fields.push("seen=1");
  if (where) fields.push(`where=${encodeURIComponent(where)}`);
  return `#${fields.join("&")}`;
}
