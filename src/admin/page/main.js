// @ts-check
/**
 * The dashboard. It polls noria's state and follows noria's events. It shows only polled state: an event only triggers
 * the next poll.
 */
import { openActions } from './actions.js';
import { ApiError, follow, hasToken, read, setToken } from './api.js';
import { openConnect } from './connect.js';
import { askToken } from './dialogs.js';
import { byId, setAttribute, setText } from './dom.js';
import { foldFailures, openFailures } from './failures.js';
import { duration } from './format.js';
import { openFrame } from './frame.js';
import { announce, showHeadline, showLost } from './headline.js';
import { openMemberCard, openMemberTable } from './member.js';
import { openRequests } from './requests.js';
import { MAX_SESSIONS, openSessions } from './sessions.js';
import { MAX_SITES, openSites } from './sites.js';
import { openSources } from './sources.js';
import { TEXTS } from './texts.js';
import { openTraffic } from './traffic.js';
import { MAX_MEMBERS, Wheel } from './wheel.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').HistoryView} History
 */

const FOLLOWED_EVENTS = [
  'member.joined',
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.left',
  'session.bound',
  'session.moved',
  'session.ended',
  'draw.started',
  'draw.done',
  'source.moved',
  'readiness.changed',
  'network.judged',
];
/** The dashboard polls at this interval even without events, because some counts change without an event. */
const POLL_MS = 2_000;
/** The minimum time between two polls, however many events arrive. */
const MIN_POLL_SPACING_MS = 300;
const HISTORY_POLL_MS = 5_000;
const TICK_MS = 500;
/** The delays before the reconnect attempts. All later attempts use the last delay. */
const RECONNECT_MS = [500, 1_000, 2_000, 4_000];

/** @type {readonly Member[]} */
let members = [];
/**
 * The id of the member under the pointer or the focus, and the id of the selected member.
 * @type {{ pointed?: string | undefined, pinned?: string | undefined }}
 */
const selection = {};
/** @type {'15m' | '24h'} */
let span = '15m';
let skewMs = 0;
/** The moment at which noria last answered, by performance.now(). */
let lastAnswerAt = performance.now();
let isDisconnected = false;

openFrame();
const wheel = new Wheel((member, pinned) => {
  if (pinned) selection.pinned = selection.pinned === member?.id ? undefined : member?.id;
  selection.pointed = member?.id;
  showCard();
});
const actions = openActions(poll);
const card = openMemberCard((member) => void actions.evict(member).then(keepFocus));
const memberTable = openMemberTable((member) => wheel.levelOf(member));
const connect = openConnect();
const sources = openSources(actions);
const traffic = openTraffic();
const failures = openFailures();
const sessions = openSessions(actions);
const sites = openSites();
const requests = openRequests();

/**
 * Moves the keyboard focus to the wheel after an eviction. The eviction removes the member's card with the focused
 * button; without this function, the focus would be at the top of the page.
 */
function keepFocus() {
  if (document.activeElement === document.body) wheel.focus();
}

let isPolling = false;
let pollAgain = false;

/** Polls noria's state. If a poll is in progress, another poll follows it. */
function poll() {
  if (isPolling) {
    pollAgain = true;
    return;
  }
  isPolling = true;
  pollAgain = false;
  void loadState().finally(() => {
    setTimeout(() => {
      isPolling = false;
      if (pollAgain) poll();
    }, MIN_POLL_SPACING_MS);
  });
}

async function loadState() {
  try {
    const [statusAnswer, memberAnswer, sessionAnswer, failureAnswer, siteAnswer] = await Promise.all([
      read('/api/status'),
      read(`/api/members?limit=${MAX_MEMBERS}`),
      read(`/api/sessions?limit=${MAX_SESSIONS}`),
      read('/api/failures'),
      read(`/api/sites?limit=${MAX_SITES}`),
    ]);
    const status = /** @type {Status} */ (statusAnswer.value);
    members = memberAnswer.value;
    skewMs = statusAnswer.skewMs;
    showHeadline(status);
    connect.showStatus(status);
    wheel.show(status, members, performance.now());
    showCard();
    memberTable.show(members);
    document.body.dataset['members'] = members.length === 0 ? 'none' : 'some';
    const { others, repeated } = foldFailures(failureAnswer.value, status.sources);
    sources.show(status.sources, repeated);
    sessions.show(sessionAnswer.value, status.pool.sessions);
    sites.show(siteAnswer.value);
    failures.show(others, repeated.size > 0);
    showConnected();
    tick();
  } catch (error) {
    // An ApiError is an answer of noria, so the page is still connected. If the token is wrong, `stayConnected` gets
    // the same error and asks the person for the token.
    if (!(error instanceof ApiError)) showDisconnected();
  }
}

let isLoadingHistory = false;

async function loadHistory() {
  if (isLoadingHistory) return;
  isLoadingHistory = true;
  try {
    const { value } = await read(`/api/history?span=${span}`);
    const history = /** @type {History} */ (value);
    if (history.span !== span) return; // drops the answer: the person has chosen another time range since the request
    traffic.show(history);
    connect.showHistory(history);
    if (span === '15m') wheel.showRate(history.tunnelsPerSecond.at(-1) ?? 0);
  } catch {
    // ignored: the next poll shows whether noria answers
  } finally {
    isLoadingHistory = false;
  }
}

/** Shows the member under the pointer or the focus, or else the selected member. */
function showCard() {
  const find = (/** @type {string | undefined} */ id) => members.find((member) => member.id === id);
  const pinned = find(selection.pinned);
  if (pinned === undefined) delete selection.pinned;
  wheel.markPinned(selection.pinned);
  card.show(find(selection.pointed) ?? pinned);
}

/** Updates what changes between two polls: the levels of buckets, countdowns and ages. */
function tick() {
  if (isDisconnected) {
    const silentSeconds = (performance.now() - lastAnswerAt) / 1_000;
    setText(byId('connection'), TEXTS.connection.lost(duration(silentSeconds)));
    showLost(silentSeconds);
    return;
  }
  const now = Date.now() + skewMs;
  wheel.updateLevels(performance.now());
  sources.tick(now);
  failures.tick(now);
}

function showConnected() {
  lastAnswerAt = performance.now();
  if (isDisconnected) announce(TEXTS.connection.announceRestored);
  isDisconnected = false;
  document.body.dataset['connection'] = 'live';
  setText(byId('connection'), TEXTS.connection.live);
}

function showDisconnected() {
  if (!isDisconnected) announce(TEXTS.connection.announceLost);
  isDisconnected = true;
  document.body.dataset['connection'] = 'lost';
  tick();
}

/** Follows the events until the page is closed. Reconnects after each loss of the stream. */
async function stayConnected() {
  for (let failedTries = 0; ; ) {
    try {
      await follow(FOLLOWED_EVENTS, (name) => {
        failedTries = 0;
        if (name === 'hello') {
          void loadHistory();
          void requests.load();
        }
        poll();
      });
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        const rejected = hasToken();
        setToken(undefined);
        setToken(await askToken(rejected));
        byId('forget-token').hidden = false;
        continue;
      }
      // For any other error, the code below shows that noria is disconnected, waits and connects again.
    }
    showDisconnected();
    const delayMs = RECONNECT_MS[Math.min(failedTries, RECONNECT_MS.length - 1)];
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    failedTries += 1;
  }
}

/** @param {'15m' | '24h'} chosen */
function switchSpan(chosen) {
  span = chosen;
  for (const button of document.querySelectorAll('[data-span]')) {
    setAttribute(button, 'aria-pressed', String(button.getAttribute('data-span') === chosen));
  }
  isLoadingHistory = false;
  void loadHistory();
}

/** @param {() => void} load */
function whileVisible(load) {
  if (!document.hidden && !isDisconnected) load();
}

for (const button of document.querySelectorAll('[data-span]')) {
  button.addEventListener('click', () =>
    switchSpan(button.getAttribute('data-span') === '24h' ? '24h' : '15m'),
  );
}
byId('forget-token').hidden = !hasToken();
byId('forget-token').addEventListener('click', () => {
  setToken(undefined);
  location.reload();
});
document.addEventListener('visibilitychange', () => whileVisible(poll));
setInterval(() => whileVisible(poll), POLL_MS);
setInterval(() => whileVisible(() => void loadHistory()), HISTORY_POLL_MS);
setInterval(() => whileVisible(() => void requests.load()), HISTORY_POLL_MS);
setInterval(tick, TICK_MS);
void stayConnected();
