// Panels: parts of the page that send a request, wait, and show the answer or the error.

const SLOW = 180; // milliseconds before waiting becomes visible
const LONGEST_WAIT = 60; // seconds
const ATTEMPTS = 5;

const UNANSWERED = {
  timeout: ["The service is taking too long", "It has not answered for 20 seconds."],
  unreachable: ["The service does not answer", "Check that it is running and that you are connected, then try again."],
};
const REFUSED = {
  401: ["A token is needed", "Without a token this service does not answer."],
  404: ["Not found", ""],
  413: ["Too much at once", ""],
  422: ["The service cannot read this", ""],
  429: ["The service is busy", "Too many requests at the moment."],
  501: ["Not something this model can do", ""],
  503: ["The service is busy", "It cannot take requests at the moment."],
};
const UNKNOWN = { unknown_user: "No such user", unknown_item: "No such item" };

/** Returns heading and explanation of an error. */
function wordsFor(error) {
  if (!(error instanceof ServiceError)) return ["This page made a mistake", String(error?.message ?? error)];
  const fallback = error.status >= 500 ? ["The service failed", "It had an error of its own."]
    : error.status >= 400 ? ["The service refused", ""]
    : ["The answer cannot be read", "It is not what this page expects, or was cut off."];
  const [heading, text] = UNANSWERED[error.code] ?? REFUSED[error.status] ?? fallback;
  return [UNKNOWN[error.code] ?? heading, sentence(error.message) || text];
}

const mayPass = (error) => error instanceof ServiceError && [429, 503].includes(error.status);
const isFinal = (error) => error instanceof ServiceError && [404, 501].includes(error.status);

/** Returns a box that says there is nothing here, and why. */
const emptyBox = (heading, text = "", ...more) =>
  make("div", { class: "box" }, make("p", { class: "box-heading" }, heading), text && make("p", {}, text), ...more);

/** Returns grey lines in the shape of what is to come. */
const skeleton = (lines) =>
  make("div", { class: "skeleton" },
    make("p", { class: "visually-hidden" }, "Loading"),
    Array.from({ length: lines }, () => make("span", { class: "bone" })));

class Panel {
  /** @param body the element that is filled; @param lines how many grey lines stand for its content. */
  constructor(body, lines = 5) {
    Object.assign(this, { body, lines, question: null, timer: null });
  }

  /** Forgets what was asked: an answer that still comes is dropped. */
  stop() {
    this.question?.abort();
    this.question = null;
    clearTimeout(this.timer);
    this.body.removeAttribute("aria-busy");
  }

  /** Shows this and nothing else. */
  fill(...nodes) {
    this.stop();
    this.body.replaceChildren(...nodes.filter(Boolean));
  }

  /**
   * Asks, then shows the answer or the error; whatever was asked before is dropped.
   * @param ask gets an abort signal, returns a promise.
   * @param keep whether the old content stays in sight, paled, while a slow answer is awaited.
   */
  async load(ask, show, { keep = false, attempt = 1 } = {}) {
    this.stop();
    const question = (this.question = new AbortController());
    this.body.setAttribute("aria-busy", "true");
    if (!keep) this.timer = setTimeout(() => this.body.replaceChildren(skeleton(this.lines)), SLOW);
    try {
      const answer = await ask(question.signal);
      if (question.signal.aborted) return;
      this.stop();
      show(answer);
    } catch (error) {
      if (question.signal.aborted) return;
      this.fail(error, () => this.load(ask, show, { attempt: attempt + 1 }), attempt);
    }
  }

  fail(error, again, attempt) {
    const [heading, text] = wordsFor(error);
    const waits = mayPass(error) && attempt < ATTEMPTS;
    const countdown = waits ? make("p", { class: "countdown" }) : null;
    const label = waits ? "Try now" : error.status === 401 ? "Enter token" : "Try again";
    const retry = isFinal(error) ? null : button(label, again);
    this.fill(make("div", { class: "box problem", role: "alert" },
      make("p", { class: "box-heading" }, heading),
      text && make("p", {}, text),
      countdown,
      retry && make("p", { class: "actions" }, retry)));
    if (waits) this.countDown(countdown, Math.min(LONGEST_WAIT, Math.ceil(error.retryAfter ?? attempt)), again);
  }

  countDown(element, seconds, again) {
    if (seconds <= 0) return void again();
    element.textContent = `Trying again in ${seconds} s.`;
    this.timer = setTimeout(() => this.countDown(element, seconds - 1, again), 1000);
  }
}
