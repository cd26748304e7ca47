// The service: one way to ask it, one kind of error, the token.

const CALM = 5_000; // milliseconds between two changes of model that the page follows
const PATIENCE = 20_000; // milliseconds until a silent service counts as gone
const MAIN = "v1"; // what the addresses of the model begin with
const OTHER = "v1/compare"; // and those of the model that it is compared with

/** What went wrong, by status: 0 where there was no answer at all. */
class ServiceError extends Error {
  constructor(status, code, message, retryAfter = null) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

/** Returns the value of a JSON string. Integers beyond 2^53 stay exact, since an id may be one. */
function readJson(text) {
  return JSON.parse(text, (key, value, context) => {
    const exact = typeof value !== "number" || Number.isSafeInteger(value) || !/^-?\d+$/.test(context?.source ?? "");
    return exact ? value : BigInt(context.source);
  });
}

/** Returns the JSON string of a value, the other way round. */
const writeJson = (value) =>
  JSON.stringify(value, (key, part) =>
    (typeof part === "bigint" ? (JSON.rawJSON?.(String(part)) ?? Number(part)) : part));

const service = {
  token: null,
  asking: null, // the one open question for a token, shared by all requests that wait for it
  versions: {}, // by what the addresses of a model begin with
  followed: 0, // when the last change of model was followed
  onNewVersion: () => {},

  /** Returns the answer to a GET, or to a POST when there is a body. */
  async ask(path, { body, signal } = {}) {
    for (;;) {
      const sent = this.token;
      const response = await this.send(path, body, signal);
      if (response.status === 401) await this.needToken(sent);
      else return this.read(response, path.startsWith(`${OTHER}/`) ? OTHER : MAIN);
    }
  },

  async send(path, body, signal) {
    const headers = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (this.token !== null) headers.Authorization = `Bearer ${this.token}`;
    const limit = AbortSignal.timeout(PATIENCE);
    try {
      return await fetch(path, {
        method: body === undefined ? "GET" : "POST",
        body: body === undefined ? undefined : writeJson(body),
        headers,
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ServiceError(0, limit.aborted ? "timeout" : "unreachable", "");
    }
  },

  async read(response, base) {
    let answer = null;
    try {
      answer = readJson(await response.text());
    } catch {
      // Not JSON, or cut off: told apart below.
    }
    if (response.ok && answer !== null) {
      this.noteVersion(base, answer.model_version);
      return answer;
    }
    const { code = "unreadable", message = "" } = answer?.error ?? {};
    const seconds = Number.parseFloat(response.headers.get("Retry-After"));
    throw new ServiceError(response.status, code, String(message), Number.isFinite(seconds) ? seconds : null);
  },

  noteVersion(base, version) {
    if (version === undefined || version === this.versions[base]) return;
    const swapped = this.versions[base] !== undefined;
    // Behind one name there may for a while be two models: following each answer would never end.
    if (swapped && Date.now() - this.followed < CALM) return;
    this.versions[base] = version;
    if (!swapped) return;
    this.followed = Date.now();
    this.onNewVersion();
  },

  /** Waits until there is a token other than the one that was refused. */
  async needToken(refused) {
    if (this.token !== refused) return;
    this.asking ??= askForToken(refused !== null).finally(() => (this.asking = null));
    this.token = await this.asking;
  },
};

/** Returns a path whose parts may hold anything. */
const path = (strings, ...parts) =>
  String.raw({ raw: strings }, ...parts.map((part) => encodeURIComponent(String(part))));

/** Returns the token that the person types, or fails when they would rather not. */
function askForToken(refused) {
  const dialog = byId("token-dialog");
  const input = byId("token-input");
  byId("token-note").textContent = refused
    ? "The service did not accept that token. Try another one."
    : "It is kept in this page’s memory only and forgotten when you leave.";
  input.value = "";
  dialog.showModal();
  return new Promise((resolve, reject) => {
    const listening = new AbortController();
    const { signal } = listening;
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (token) dialog.close(token);
      else input.focus();
    }, { signal });
    byId("token-cancel").addEventListener("click", () => dialog.close(""), { signal });
    dialog.addEventListener("cancel", () => (dialog.returnValue = ""), { signal });
    dialog.addEventListener("close", () => {
      listening.abort();
      const token = dialog.returnValue;
      dialog.returnValue = input.value = "";
      if (token) resolve(token);
      else reject(new ServiceError(401, "unauthorized", ""));
    }, { signal });
  });
}
