// @ts-check
/** The sentences and terms that scripts show. Those of the frame are in index.html. */

/** The headline by the state of readiness; `titleMark` starts the tab's title. */
export const HEADLINES = {
  serving: { text: 'noria works', titleMark: '' },
  starting: { text: 'noria is starting', titleMark: '… ' },
  idle: { text: 'noria is ready, without clients', titleMark: '' },
  degraded: { text: 'noria works, with problems', titleMark: '! ' },
  'not-serving': { text: 'noria cannot serve clients', titleMark: '✕ ' },
};

export const LOST = {
  headline: 'noria does not answer',
  title: '✕ noria does not answer',
  /** @param {string} silent */
  detail: (silent) =>
    `No answer for ${silent}: the process has ended, or this browser cannot reach it. The figures below are the last ones. The page keeps trying.`,
  advice:
    'Check that noria runs, for example with systemctl status noria or docker ps, and look at the end of its log.',
};

/** @param {string} time */
export const notServingFor = (time) => `This has lasted for ${time}.`;
export const NEXT_ATTEMPT = {
  /** @param {string} time */
  in: (time) => `noria tries again in ${time}.`,
  now: 'noria tries again now.',
  none: 'noria tries again when you have acted, or with the next client.',
};
/** @param {string} waiting */
export const waitingFor = (waiting) => `${waiting} waiting for a member.`;
/** @param {string} usable */
export const usableTitle = (usable) => `noria: ${usable} usable`;
export const NOT_SERVING_TITLE = 'noria: no service';

export const CONNECT = {
  proxy: 'Proxy',
  test: 'Test it',
  copy: 'Copy',
  copied: 'Copied.',
  /** @param {string} proxy */
  curl: (proxy) => `curl -x ${proxy} https://example.com/`,
  none: 'No listener accepts HTTP.',
};

export const VITALS = {
  usable: 'usable',
  success: 'requests served',
  p50: 'connect time p50',
  p95: 'connect time p95',
  noData: '–',
  /** @param {string} wanted @param {string} extra */
  counts: (wanted, extra) => (extra === '' ? `${wanted} wanted` : `${wanted} wanted, ${extra} extra`),
  /** @param {string} failed @param {string} span */
  failed: (failed, span) => `${failed} failed in ${span}`,
  spans: { '15m': '15 minutes', '24h': '24 hours' },
};

export const MARKS =
  'Height of a bucket: remaining lifetime; dashed edge: unknown. Line to the hub: open tunnels. Speed of the axle: tunnels per second.';

/** Of the member card while no member is selected, by the kind of pointer. */
export const CARD_HINT = {
  mouse: 'Point at a bucket of the wheel to see its member. Click it or press Enter to keep it selected.',
  touch: 'Tap a bucket of the wheel to see its member.',
};

export const USAGE = {
  used: 'used',
  'not-yet-used': 'in the pool, not used yet',
  'never-used': 'never used (wasted)',
};

/** Tooltips. */
export const SOURCE_STATES = {
  idle: 'no client needs members',
  ready: 'holds all wanted members',
  drawing: 'calls the service now',
  waiting: 'waits until the pace allows a call',
  backoff: 'the service failed; noria retries later',
  paused: 'does not draw for now',
  halted: 'does not draw until the operator acts',
};

/** What the failure meant for the client. */
export const CONSEQUENCES = {
  request: 'the client got an error',
  refusal: 'the client was refused',
  attempt: 'noria tried another member',
  source: 'nothing was drawn',
};

/** @param {string} message @param {string} meaning */
export const serviceMessage = (message, meaning) => `The service says “${message}”. Meaning: ${meaning}`;
/** @param {string} message */
export const transportDetails = (message) => `Details: ${message}`;

/** The question before an action that cannot be undone, and the message after each action. `id` is a member or a session. */
export const ACTIONS = {
  cancel: 'Cancel',
  evict: {
    action: 'Evict',
    /** @param {string} id */
    title: (id) => `Evict ${id}?`,
    /** @param {string} tunnels */
    text: (tunnels) =>
      `noria stops using it for new connections and does not draw it again. Open tunnels continue.${tunnels === '' ? '' : ` It still has ${tunnels}.`}`,
    /** @param {string} id */
    done: (id) => `${id} was evicted`,
  },
  refill: {
    action: 'Draw now',
    /** @param {string} source */
    label: (source) => `Draw now from ${source}`,
    /** @param {string} source */
    done: (source) => `${source} draws as soon as its pace allows`,
  },
  resume: {
    action: 'Resume',
    /** @param {string} source */
    label: (source) => `Resume ${source}`,
    /** @param {string} source */
    done: (source) => `${source} was resumed`,
  },
  pause: {
    action: 'Pause',
    /** @param {string} source */
    label: (source) => `Pause ${source}`,
    /** @param {string} source */
    title: (source) => `Pause ${source}?`,
    /** @param {string} members */
    text: (members) =>
      `noria draws nothing from it until you resume it. Its ${members} can be used until they expire.`,
    /** @param {string} source */
    done: (source) => `${source} was paused`,
  },
  rotate: {
    action: 'Rotate',
    /** @param {string} id */
    label: (id) => `Rotate ${id} to another member with its next connection`,
    /** @param {string} id */
    done: (id) => `${id} moves to another member with its next connection`,
  },
  rotateNow: {
    action: 'Rotate now',
    /** @param {string} id */
    label: (id) => `Rotate now: ${id}, and close its open tunnels`,
    /** @param {string} id */
    title: (id) => `Rotate ${id} now?`,
    text: 'The session moves to another member, and its open tunnels are closed immediately.',
    /** @param {string} id */
    done: (id) => `${id} was moved and its tunnels were closed`,
  },
  forget: {
    action: 'Forget',
    /** @param {string} id */
    label: (id) => `Forget session ${id}`,
    /** @param {string} id */
    title: (id) => `Forget ${id}?`,
    text: 'The next connection starts a new session, possibly with another member. Open tunnels continue.',
    /** @param {string} id */
    done: (id) => `${id} was forgotten`,
  },
};

export const TOKEN = {
  title: 'Token required',
  label: 'Token',
  action: 'Continue',
  wrong: 'Wrong token. Enter admin.token of the configuration.',
  ask: 'Enter admin.token of the configuration. This page keeps it until the tab is closed.',
};

export const CONNECTION = {
  live: 'live',
  /** @param {string} silent */
  lost: (silent) => `disconnected for ${silent}, reconnecting`,
  announceLost: 'Connection to noria lost.',
  announceRestored: 'Connection to noria restored.',
};

export const CHARTS = {
  tunnels: 'Tunnels per second',
  bytes: 'Bytes per second',
  connectTime: 'Connect time',
  served: 'Requests served',
  left: 'Members that left the pool',
  failures: 'Failures by side at fault',
};
