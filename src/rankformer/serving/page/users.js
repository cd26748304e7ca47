// A user of the training data or a new one: each has a list, and explanations.

const HISTORY = 100; // items of a history that are fetched
const SUGGESTIONS = 20;
const REST = 150; // milliseconds without a change before the new user's list is asked for

/** Items met in answers, by key: their ids as the service writes them, their titles and attributes. */
const catalogue = new Map();

/** Keeps the items of an answer in mind and returns the answer. */
function remember(answer) {
  for (const { item_id: id, title = null, attributes = null, cold = catalogue.get(keyOf(id))?.cold } of answer.items) {
    catalogue.set(keyOf(id), { item_id: id, title, attributes, cold });
  }
  return answer;
}

/** Returns what is known of an item; for one never met, its key must do. */
const itemOf = (key) => catalogue.get(key) ?? { item_id: key, title: null };

/** Looks up those of these items that came by address and were never met. */
async function resolve(keys, signal) {
  const unknown = keys.filter((key) => !catalogue.has(key));
  await Promise.all(unknown.map((key) => searchItems(key, signal)));
}

const LONGEST_QUERY = 200; // characters that the service searches for
const queryOf = (text) => [...text].slice(0, LONGEST_QUERY).join("");

const searchItems = async (text, signal) =>
  remember(await service.ask(path`v1/items?query=${queryOf(text)}&limit=${SUGGESTIONS}`, { signal })).items;

const searchUsers = async (text, signal, limit = SUGGESTIONS) =>
  (await service.ask(path`v1/users?query=${queryOf(text)}&limit=${limit}`, { signal })).users;

/** Returns after some time, or never when the signal comes first. */
const pause = (milliseconds, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });

/** Returns a user of the training data. */
const knownUser = (user) => ({
  name: user,
  history: async (signal) => remember(await service.ask(path`v1/users/${user}/history?limit=${HISTORY}`, { signal })),
  list: async ({ length, seen, where }, signal) => {
    const filter = where ? path`&where=${where}` : "";
    const address = path`v1/recommend/${user}?k=${length}&include_seen=${seen}` + filter;
    const answer = remember(await service.ask(address, { signal }));
    // An id that nobody has is most likely mistyped: the history route says so.
    if (answer.fallback) await service.ask(path`v1/users/${user}/history?limit=1`, { signal });
    return answer;
  },
  explain: async (key, signal) => service.ask(path`v1/explain/${user}/${key}`, { signal }),
});

/** Returns a new user with these items. */
const newUser = (picks) => ({
  name: "the new user",
  list: async ({ length, seen, where }, signal) => {
    await pause(REST, signal);
    await resolve(picks, signal);
    const body = { history: picks.map((key) => itemOf(key).item_id), k: length, include_seen: seen };
    if (where) body.where = where;
    return remember(await service.ask("v1/recommend:session", { body, signal }));
  },
  explain: async (key, signal) => {
    await pause(REST, signal);
    await resolve([...picks, key], signal);
    const body = { history: picks.map((pick) => itemOf(pick).item_id), item: itemOf(key).item_id };
    return service.ask("v1/explain:session", { body, signal });
  },
});
