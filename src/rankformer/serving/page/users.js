// A user of the training data or a new one: each has a list, and explanations.

const HISTORY = 100; // items of a history that are fetched to be shown
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

/** Returns the filters of a list that were given, as the service expects them. */
function filtersOf(state) {
  const parts = (text) => text.split(";").map((part) => part.trim()).filter(Boolean);
  const given = FILTERS.filter((name) => state[name].trim());
  return Object.fromEntries(given.map((name) => [name, name === "where" ? state.where : parts(state[name])]));
}

/** Returns a list by its history, given as keys: of a new user, or what a known user has added. */
async function listByHistory(keys, state, signal, base, user = null) {
  const filters = filtersOf(state);
  const ids = ["allow", "block"].filter((name) => filters[name]);
  await resolve([...keys, ...ids.flatMap((name) => filters[name])], signal);
  const idsOf = (list) => list.map((key) => itemOf(key).item_id);
  for (const name of ids) filters[name] = idsOf(filters[name]);
  const body = { user, history: idsOf(keys), k: state.length, include_seen: state.seen, ...filters };
  return remember(await service.ask(`${base}/recommend:session`, { body, signal }));
}

async function explainByHistory(keys, key, signal, base, user = null) {
  await resolve([...keys, key], signal);
  const body = { user, history: keys.map((each) => itemOf(each).item_id), item: itemOf(key).item_id };
  return service.ask(`${base}/explain:session`, { body, signal });
}

/** Returns a user of the training data, with what they have clicked since. */
const knownUser = (user, clicks) => {
  const history = async (signal, limit = HISTORY) =>
    remember(await service.ask(path`v1/users/${user}/history?limit=${limit}`, { signal }));
  const idOf = async (signal) => (await history(signal, 1)).user_id; // as the service writes it; 404 if mistyped
  return {
    name: user,
    history,
    list: async (state, signal, base = MAIN) => {
      if (clicks.length) return listByHistory(clicks, state, signal, base, await idOf(signal));
      const fields = Object.entries(filtersOf(state)).flatMap(([name, value]) =>
        [value].flat().map((each) => path`&${name}=${each}`));
      const address = path`/recommend/${user}?k=${state.length}&include_seen=${state.seen}`;
      const answer = remember(await service.ask(base + address + fields.join(""), { signal }));
      // An id that nobody has is most likely mistyped: the history route says so.
      if (answer.fallback && base === MAIN) await idOf(signal);
      return answer;
    },
    explain: async (key, signal, base = MAIN) => {
      if (clicks.length) return explainByHistory(clicks, key, signal, base, await idOf(signal));
      return service.ask(base + path`/explain/${user}/${key}`, { signal });
    },
  };
};

/** Returns a new user with these items. */
const newUser = (picks) => ({
  name: "the new user",
  list: async (state, signal, base = MAIN) => {
    await pause(REST, signal);
    return listByHistory(picks, state, signal, base);
  },
  explain: async (key, signal, base = MAIN) => {
    await pause(REST, signal);
    return explainByHistory(picks, key, signal, base);
  },
});
