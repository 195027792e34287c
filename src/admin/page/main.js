// @ts-check
/**
 * The dashboard: asks noria for its state, follows its events, and shows both. An event never changes what is shown by
 * itself; it only says that it is time to ask again. So what stands here is always what noria said last.
 */
import { act, follow, hasToken, Refused, read, setToken } from './api.js';
import { askToken, confirm, toast } from './dialogs.js';
import { byId, h, setAttribute, setText } from './dom.js';
import { openFailures } from './failures.js';
import { openMemberCard, openRoster } from './member.js';
import { MOST_ASKED, openSessions } from './sessions.js';
import { openSources } from './sources.js';
import { openTraffic } from './traffic.js';
import { MOST_DRAWN, Wheel } from './wheel.js';
import { count, counted, duration, sentence } from './words.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {import('../schemas.ts').MemberView} Member
 * @typedef {import('../schemas.ts').HistoryView} History
 */

/** What is worth asking again for. */
const FOLLOWED = [
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
  'network.judged',
];
/** Asked again this often even if nothing happens: loads and counts change without an event. */
const REFRESH_MS = 2_000;
/** At least so long between two questions, however much happens. */
const SPACING_MS = 300;
const HISTORY_MS = 5_000;
const TICK_MS = 500;
/** Before each try to reach noria again; the last one stays. */
const RETRY_MS = [500, 1_000, 2_000, 4_000];

/** @type {readonly Member[]} */
let members = [];
/** Which member the card shows: the one that was chosen, else the one that is pointed at. @type {{ pinned?: string | undefined, pointed?: string | undefined }} */
const looked = {};
/** @type {'15m' | '24h'} */
let span = '15m';
let skewMs = 0;
/** When noria last answered, by performance.now(). */
let contactAt = performance.now();
let lost = false;

const wheel = new Wheel((member, pinned) => {
  if (pinned) looked.pinned = looked.pinned === member?.id ? undefined : member?.id;
  looked.pointed = member?.id;
  showCard();
});
const card = openMemberCard((member) => void evict(member));
const roster = openRoster();
const sources = openSources({
  refill: ({ name }) =>
    void perform(`${name} draws as soon as its pace allows`, 'POST', path('sources', name, 'refill')),
  resume: ({ name }) => void perform(`${name} was resumed`, 'POST', path('sources', name, 'resume')),
  pause: ({ name, ready }) => void pause(name, ready),
});
const traffic = openTraffic();
const failures = openFailures();
const sessions = openSessions({
  rotate: ({ id }) =>
    void perform(`${id} moves with its next connection`, 'POST', path('sessions', id, 'rotate')),
  rotateNow: ({ id }) => void cut(id),
  forget: ({ id }) => void forget(id),
});

/** @param {...string} parts */
function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join('/')}`;
}

/** @param {Member} member */
async function evict({ id, openTunnels }) {
  const tunnels =
    openTunnels === 0 ? '' : ` Its ${counted(openTunnels, 'open tunnel')} will go on to the end.`;
  const text = `It is paid for, takes nothing new from now on, and is not drawn again.${tunnels}`;
  if (!(await confirm({ title: `Evict ${id}?`, text, verb: 'Evict it' }))) return;
  await perform(`${id} was evicted`, 'POST', path('members', id, 'evict'));
}

/** @param {string} name @param {number} ready */
async function pause(name, ready) {
  const text = `It draws nothing until it is resumed. Its ${counted(ready, 'usable member')} serve until they expire.`;
  if (!(await confirm({ title: `Pause ${name}?`, text, verb: 'Pause it' }))) return;
  await perform(`${name} was paused`, 'POST', path('sources', name, 'pause'));
}

/** @param {string} id */
async function cut(id) {
  const text = 'The session moves to another member at once, and its open tunnels are ended in the middle.';
  if (!(await confirm({ title: `Cut ${id}?`, text, verb: 'Cut its tunnels' }))) return;
  await perform(`${id} was moved and cut`, 'POST', path('sessions', id, 'rotate'), { close: true });
}

/** @param {string} id */
async function forget(id) {
  const text =
    'Its next connection begins a new session, with whichever member comes up. Open tunnels go on.';
  if (!(await confirm({ title: `Forget ${id}?`, text, verb: 'Forget it' }))) return;
  await perform(`${id} was forgotten`, 'DELETE', path('sessions', id));
}

/** @param {string} done @param {'POST' | 'DELETE'} method @param {string} where @param {object} [body] */
async function perform(done, method, where, body) {
  try {
    await act(method, where, body);
    toast(sentence(done), 'fine');
  } catch (error) {
    toast(sentence(error instanceof Error ? error.message : String(error)), 'failed');
  }
  refresh();
}

let asking = false;
let askAgain = false;

/** Asks for everything once more, soon; whatever happens meanwhile is one more question. */
function refresh() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  askAgain = false;
  void askAll().finally(() => {
    setTimeout(() => {
      asking = false;
      if (askAgain) refresh();
    }, SPACING_MS);
  });
}

async function askAll() {
  try {
    const [state, list, held, failed] = await Promise.all([
      read('/api/status'),
      read(`/api/members?limit=${MOST_DRAWN}`),
      read(`/api/sessions?limit=${MOST_ASKED}`),
      read('/api/failures'),
    ]);
    const status = /** @type {Status} */ (state.value);
    members = list.value;
    skewMs = state.skewMs;
    const at = performance.now();
    showVerdict(status);
    wheel.show(status.sources, members, at);
    showCard();
    roster.show(members);
    sources.show(status.sources);
    sessions.show(held.value, status.pool.sessions);
    failures.show(failed.value);
    inContact();
    tick();
  } catch {
    // ignored: the stream notices that noria is away, says so, and asks again when it is back
  }
}

let historyAsked = false;

async function askHistory() {
  if (historyAsked) return;
  historyAsked = true;
  try {
    const { value } = await read(`/api/history?span=${span}`);
    const history = /** @type {History} */ (value);
    if (history.span !== span) return; // another one was chosen meanwhile
    traffic.show(history);
    if (span === '15m') wheel.turn(history.tunnelsPerSecond.at(-1) ?? 0);
  } catch {
    // ignored: as above
  } finally {
    historyAsked = false;
  }
}

/** @param {Status} now */
function showVerdict({ ready, reason, version, uptimeSeconds, listeners, pool, sources: all }) {
  const clauses = reason.replace(/^(not )?ready: /, '').split('; ');
  const troubled = clauses.length > 1 || (pool.ready === 0 && pool.waitingClients > 0);
  const mood = !ready ? 'bad' : troubled ? 'troubled' : 'good';
  const verdict = { good: 'noria works', troubled: 'noria works, with trouble', bad: 'noria does not work' }[
    mood
  ];
  setAttribute(byId('verdict'), 'data-mood', mood);
  setText(byId('sentence'), `${verdict}: ${clauses[0]?.replace(/\.$/, '')}.`);
  // Each begins with a source's name, which stays as it is written.
  const notes = clauses.slice(1).map((clause) => (clause.endsWith('.') ? clause : `${clause}.`));
  if (pool.waitingClients > 0)
    notes.unshift(`${counted(pool.waitingClients, 'client')} waiting for a member.`);
  const troubles = byId('troubles');
  if (troubles.dataset['said'] !== notes.join()) {
    troubles.dataset['said'] = notes.join();
    troubles.replaceChildren(...notes.map((note) => h('li', {}, note)));
  }
  document.title = `${{ good: '', troubled: '! ', bad: '\u2715 ' }[mood]}noria: ${count(pool.ready)} usable`;
  const open = listeners.reduce((sum, { connections }) => sum + connections, 0);
  const facts = [
    `${listeners.map(({ address }) => address).join(', ') || 'no listener'}`,
    `${counted(open, 'client')} connected`,
    `${counted(pool.openTunnels, 'tunnel')} open`,
    `${counted(all.length, 'source')}`,
    `up ${duration(uptimeSeconds)}`,
    `version ${version}`,
  ];
  byId('facts').replaceChildren(...facts.map((fact) => h('li', {}, fact)));
}

/** The chosen member while it is there, else the one that is pointed at. */
function showCard() {
  const find = (/** @type {string | undefined} */ id) => members.find((member) => member.id === id);
  const pinned = find(looked.pinned);
  if (pinned === undefined) delete looked.pinned;
  wheel.mark(looked.pinned);
  card.show(find(looked.pointed) ?? pinned);
}

/** What goes on between two answers: lives end, countdowns count, silence grows. */
function tick() {
  if (lost) {
    const silent = duration((performance.now() - contactAt) / 1_000);
    setText(byId('contact'), `no contact for ${silent}, trying again`);
    return;
  }
  const now = Date.now() + skewMs;
  wheel.drain(performance.now());
  sources.tick(now);
  failures.tick(now);
}

function inContact() {
  contactAt = performance.now();
  lost = false;
  document.body.dataset['contact'] = 'live';
  setText(byId('contact'), 'live');
}

function loseContact() {
  if (!lost) document.body.dataset['contact'] = 'lost';
  lost = true;
  tick();
}

/** Follows the events for as long as the page is there; says when noria is away, and comes back to it. */
async function stayConnected() {
  for (let tries = 0; ; ) {
    try {
      await follow(FOLLOWED, (name) => {
        tries = 0;
        if (name === 'hello') void askHistory();
        refresh();
      });
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        const wrong = hasToken();
        setToken(undefined);
        setToken(await askToken(wrong));
        byId('leave').hidden = false;
        continue;
      }
      // Whatever else it was: noria is away, which is what the page says.
    }
    loseContact();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
    tries += 1;
  }
}

for (const button of document.querySelectorAll('[data-span]')) {
  button.addEventListener('click', () => {
    span = button.getAttribute('data-span') === '24h' ? '24h' : '15m';
    for (const one of document.querySelectorAll('[data-span]')) {
      setAttribute(one, 'aria-pressed', String(one === button));
    }
    historyAsked = false;
    void askHistory();
  });
}
byId('leave').hidden = !hasToken();
byId('leave').addEventListener('click', () => {
  setToken(undefined);
  location.reload();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !lost) refresh();
});
const unlessHidden = (/** @type {() => void} */ ask) => () => {
  if (!document.hidden && !lost) ask();
};
setInterval(unlessHidden(refresh), REFRESH_MS);
setInterval(
  unlessHidden(() => void askHistory()),
  HISTORY_MS,
);
setInterval(tick, TICK_MS);
void stayConnected();
