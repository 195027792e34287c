// @ts-check
/** The English texts of the page. texts-zh.js has the same keys. */

export const EN = {
  frame: {
    description: 'Members, sources, traffic and failures of noria.',
    skip: 'Skip to content',
    connecting: 'connecting',
    forgetToken: 'Forget the token',
    language: 'Language',
    loading: 'Loading',
    useProxy: 'Use the proxy',
    members: 'Members',
    sources: 'Sources',
    traffic: 'Traffic',
    failures: 'Recent failures',
    sessions: 'Sessions',
    sites: 'Sites',
    siteTable: 'Table of sites',
    site: 'Site',
    usableExits: 'Usable exits',
    bannedExits: 'Banned exits',
    spacing: 'Spacing',
    nextSlot: 'Next slot',
    drawsForBans: 'Draws for bans',
    memberTable: 'Table of members',
    memberRows: 'Rows of the member table',
    memberFilter: 'Filter members by any word',
    norias: 'Norias of the fleet',
    noria: 'Noria',
    version: 'Version',
    connectedClients: 'Clients',
    lastSeen: 'Last seen',
    sessionTable: 'Table of sessions',
    requests: 'Latest requests',
    requestFilter: 'Filter: a host, user:NAME, session:NAME, tag:NAME, member:ID, since:10m',
    onlyFailed: 'only failed ones',
    noRequests: 'No requests.',
    timeRange: 'Time range',
    span15m: '15 minutes',
    span24h: '24 hours',
    noFailures: 'No failures.',
    actions: 'Actions',
    noSessions: 'No sessions. A client starts a session with a proxy user name such as',
    member: 'Member',
    source: 'Source',
    address: 'Address',
    state: 'State',
    expiresIn: 'Expires in',
    tunnels: 'Tunnels',
    uses: 'Uses',
    faults: 'Faults',
    latency: 'Latency',
    location: 'Location',
    session: 'Session',
    documentation: 'Documentation',
    clients: 'Clients',
    errors: 'Errors',
    operations: 'Operations',
    api: 'API description',
    metrics: 'Metrics',
    pac: 'PAC file',
  },

  /** The headline for each state of readiness. `titleMark` is the prefix of the browser tab's title. */
  headlines: {
    serving: { text: 'noria works', titleMark: '' },
    starting: { text: 'noria is starting', titleMark: '… ' },
    idle: { text: 'noria is ready and idle', titleMark: '' },
    degraded: { text: 'noria works, but has problems', titleMark: '! ' },
    'not-serving': { text: 'noria cannot serve clients', titleMark: '✕ ' },
  },

  lost: {
    headline: 'noria does not answer',
    title: '✕ noria does not answer',
    /** @param {string} silent */
    detail: (silent) =>
      `No answer for ${silent}: the process has ended, or this browser cannot reach it. The figures below are the last ones. The page keeps trying.`,
    advice:
      'Check that noria runs, for example with systemctl status noria or docker ps, and look at the end of its log.',
  },

  /** @param {string} time */
  notServingFor: (time) => `noria has been in this state for ${time}.`,
  nextAttempt: {
    /** @param {string} time */
    in: (time) => `noria tries again in ${time}.`,
    now: 'noria tries again now.',
    none: 'noria tries again after you have solved the problem, or when a client connects.',
  },
  /** @param {string} waiting */
  waitingFor: (waiting) => `${waiting} waiting for a member.`,
  /** @param {string} usable */
  usableTitle: (usable) => `noria: ${usable} usable`,
  notServingTitle: 'noria: not serving',

  connect: {
    proxy: 'Proxy',
    test: 'Test it',
    copy: 'Copy',
    copied: 'Copied.',
    none: 'No listener accepts HTTP.',
  },

  vitals: {
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
  },

  marks:
    'Each bucket is a member; its height is the remaining lifetime (dashed edge: unknown). A line to the hub shows open tunnels. The more tunnels per second, the faster the axle turns.',

  /** What the member card says while no member is selected. `mouse` and `touch` are kinds of pointer. */
  cardHint: {
    mouse:
      'Point at a bucket of the wheel to see its member. Click the bucket or press Enter to keep it selected.',
    touch: 'Tap a bucket of the wheel to see its member.',
  },

  usage: {
    used: 'used',
    'not-yet-used': 'in the pool, not used yet',
    'never-used': 'never used (wasted)',
  },

  /** The tooltip of each state of a source. */
  sourceMeanings: {
    idle: 'no client needs members',
    ready: 'holds all wanted members',
    drawing: 'calls the service now',
    waiting: 'waits until the pace allows a call',
    backoff: 'the service failed; noria retries later',
    paused: 'the operator stopped it',
    suspended: 'does not draw until a condition has passed, such as a used-up quota',
    halted: 'does not draw until the operator acts',
  },

  /** What each kind of failure meant for the client. */
  consequences: {
    request: 'the client got an error',
    refusal: 'the client was refused',
    attempt: 'noria tried another member',
    source: 'no member was drawn',
  },

  /** @param {string} message */
  serviceMessage: (message) => `The service says “${message}”.`,
  /** @param {string} message */
  transportDetails: (message) => `Details: ${message}`,

  /** For each action: its button, the question before a destructive action, and the message after it. */
  actions: {
    cancel: 'Cancel',
    evict: {
      action: 'Evict',
      /** @param {string} id */
      title: (id) => `Evict ${id}?`,
      /** @param {string} tunnels */
      text: (tunnels) =>
        `noria stops using this member for new connections and does not draw it again. Open tunnels continue.${tunnels === '' ? '' : ` The member still has ${tunnels}.`}`,
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
        `noria draws no members from this source until you resume it. Clients can use its ${members} until they expire.`,
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
      label: (id) => `Rotate now: move ${id} to another member and close its open tunnels`,
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
  },

  token: {
    title: 'Token required',
    label: 'Token',
    action: 'Continue',
    wrong: 'Wrong token. Enter admin.token of the configuration.',
    ask: 'Enter admin.token of the configuration. This page keeps it until the tab is closed.',
  },

  /**
   * The message for an error answer without a message.
   * @param {number} status
   */
  answered: (status) => `noria answered ${status}`,
  connection: {
    live: 'live',
    /** @param {string} silent */
    lost: (silent) => `disconnected for ${silent}, reconnecting`,
    announceLost: 'Connection to noria lost.',
    announceRestored: 'Connection to noria restored.',
  },

  charts: {
    tunnels: 'Tunnels per second',
    bytes: 'Bytes per second',
    connectTime: 'Connect time',
    served: 'Requests served',
    left: 'Members that left the pool',
    failures: 'Failures by the side at fault',
  },

  /** The singular and the plural of each noun, shown after a number. */
  nouns: {
    client: ['client', 'clients'],
    connection: ['client connection', 'client connections'],
    member: ['member', 'members'],
    noria: ['noria', 'norias'],
    openTunnel: ['open tunnel', 'open tunnels'],
    session: ['more session', 'more sessions'],
    source: ['source', 'sources'],
    usableMember: ['usable member', 'usable members'],
    use: ['use', 'uses'],
    worker: ['worker', 'workers'],
  },
  units: { second: 's', minute: 'min', hour: 'h', day: 'd' },
  fullStop: '.',
  colon: ': ',
  /** @param {string} found @param {string} all */
  memberCount: (found, all) => (found === all ? `${all} members` : `${found} of ${all} members`),
  comma: ', ',
  justNow: 'just now',
  /** @param {string} time */
  ago: (time) => `${time} ago`,

  /** The headline while noria is ready. @param {string} text @param {string} reason */
  readyHeadline: (text, reason) => `${text}: ${reason}.`,
  facts: {
    noListener: 'no listener',
    /** @param {number} running @param {string} workers */
    workers: (running, workers) => `${running} of ${workers} running`,
    /** @param {string} name @param {string} replica @param {string} state */
    fleet: (name, replica, state) => `fleet ${name} (this is ${replica}): ${state}`,
    /** @param {string} time */
    storeLost: (time) => `store lost for ${time}`,
    /** @param {string} time */
    up: (time) => `up ${time}`,
    /** @param {string} name */
    thisNoria: (name) => `${name} (this noria)`,
    /** @param {string} version */
    version: (version) => `version ${version}`,
  },

  memberStates: { joining: 'joining', ready: 'ready', quarantined: 'quarantined', draining: 'draining' },
  card: {
    source: 'source',
    address: 'address',
    exitIp: 'exit IP',
    location: 'location',
    expiresIn: 'expires in',
    load: 'load',
    latency: 'latency',
    faults: 'faults',
    drawnBy: 'drawn by',
    unknown: 'unknown',
    /** @param {string} times */
    inARow: (times) => `${times} in a row`,
  },
  wheel: {
    label: 'Members. Use the arrow keys to move between them.',
    /** @param {string} rate */
    rate: (rate) => `${rate} tunnels/s`,
    /** @param {string} wanted */
    wanted: (wanted) => `usable, ${wanted} wanted`,
    extra: 'extra',
    missing: 'missing',
    notShown: 'not shown',
    /** @param {string} id @param {string} source @param {string} state @param {string} expiry */
    bucket: (id, source, state, expiry) => `${id} of ${source}, ${state}, ${expiry}`,
    expiryUnknown: 'expiry unknown',
    /** @param {string} time */
    expiresIn: (time) => `expires in ${time}`,
  },

  sourceStates: {
    idle: 'idle',
    ready: 'ready',
    drawing: 'drawing',
    waiting: 'waiting',
    backoff: 'backoff',
    paused: 'paused',
    suspended: 'suspended',
    halted: 'halted',
  },
  source: {
    usable: 'usable',
    nextDraw: 'next draw',
    quota: 'quota',
    budget: 'daily budget',
    nonePlanned: 'none planned',
    whenNeeded: 'when needed',
    now: 'now',
    /** @param {string} time */
    in: (time) => `in ${time}`,
    /** @param {string} ready @param {string} wanted */
    ofWanted: (ready, wanted) => `${ready} of ${wanted} wanted`,
    /** @param {string} ready @param {string} wanted @param {string} extra */
    withExtra: (ready, wanted, extra) => `${ready}, ${wanted} wanted, ${extra} extra`,
    /** @param {string} used @param {string} limit */
    budgetUsed: (used, limit) => `${used} of ${limit} used`,
    /** @param {string} number */
    left: (number) => `${number} left`,
    /** @param {string} number */
    today: (number) => `${number} today`,
    /** @param {string} number */
    active: (number) => `${number} active`,
    /** @param {string} times @param {string} lastAt */
    failedDraws: (times, lastAt) => `This happened ${times} ×, last at ${lastAt}.`,
    /** @param {string} requests */
    failedRequests: (requests) => `${requests} client requests found no member.`,
    noneDrawn: 'No members drawn yet.',
    /** @param {string} members @param {string} used @param {string} notYet @param {string} unused */
    drawn: (members, used, notYet, unused) =>
      `${members} drawn: ${used} used, ${notYet} not used yet, ${unused} never used (wasted)`,
  },

  /** @param {string} sessions */
  notShown: (sessions) => `${sessions} not shown.`,
  noMember: 'none',
  slotNow: 'now',

  sides: {
    client: 'client',
    member: 'member',
    target: 'target',
    source: 'source',
    service: 'service',
    'front-proxy': 'front proxy',
    network: 'network',
    operator: 'operator',
    noria: 'noria',
  },
  failure: {
    /** @param {string} side @param {string} consequence */
    side: (side, consequence) => `side at fault: ${side}; ${consequence}`,
    /** @param {string} number */
    more: (number) => `and ${number} more`,
    /** @param {string} target */
    target: (target) => `target ${target}`,
    /** @param {string} source */
    source: (source) => `source ${source}`,
    /** @param {string} listener */
    listener: (listener) => `listener ${listener}`,
  },
  request: {
    served: 'served',
    accepted: 'accepted',
    /** @param {string} member @param {string} source @param {string} what @param {string} time */
    attempt: (member, source, what, time) => `member ${member} of ${source}: ${what} after ${time}`,
    /** @param {string} time @param {string} first */
    end: (time, first) => `ended after ${time}, first byte after ${first}`,
    /** @param {string} code @param {string} members @param {string} time */
    failed: (code, members, time) => `failed with ${code} after ${time}, members tried: ${members}`,
  },
  lines: {
    tunnels: 'tunnels',
    down: 'down',
    up: 'up',
    served: 'served',
    used: 'used',
    neverUsed: 'never used (wasted)',
    noData: 'no data yet',
    none: 'none',
    /** @param {string} number */
    total: (number) => `${number} in total`,
    /** @param {string} value */
    max: (value) => `max ${value}`,
    /** @param {string} value */
    min: (value) => `min ${value}`,
  },
};
