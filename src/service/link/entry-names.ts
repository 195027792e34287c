/** The usual names of the fields of an entry. Case, `_` and `-` do not matter. All functions are pure. */

/** The names for each meaning of a field, the most specific name first. */
const NAMES = {
  /** The field contains `ip:port`, or only the IP. */
  address: [
    'server',
    'ipport',
    'proxy',
    'proxyaddress',
    'proxyserver',
    'proxyurl',
    'endpoint',
    'ip',
    'host',
    'proxyip',
    'proxyhost',
    'ipaddress',
    'ipaddr',
    'address',
    'addr',
    'serverip',
    'nodeip',
    'gateway',
    'url',
  ],
  port: ['port', 'proxyport', 'serverport', 'httpport', 'nodeport'],
  exitIp: [
    'realip',
    'exitip',
    'outip',
    'outerip',
    'egressip',
    'exportip',
    'publicip',
    'outboundip',
    'proxyip',
  ],
  username: ['username', 'user', 'authuser', 'authname', 'proxyuser', 'proxyusername', 'account', 'login'],
  password: ['password', 'pass', 'passwd', 'pwd', 'authpass', 'authpassword', 'proxypass', 'proxypassword'],
  protocol: ['protocol', 'scheme', 'proxyprotocol', 'proxytype', 'type'],
  location: [
    'country',
    'countryname',
    'region',
    'regionname',
    'province',
    'prov',
    'provincename',
    'city',
    'cityname',
    'area',
    'location',
    'location2',
    'location3',
    'location4',
    'adr',
    'isp',
    'carrier',
    'operator',
  ],
  /** The field contains a point in time or a number of seconds; `expiryKindOf` finds out which. */
  expiry: [
    'expiretime',
    'expiredtime',
    'expirytime',
    'expirationtime',
    'expireat',
    'expiresat',
    'expiredat',
    'expiredate',
    'expirationdate',
    'deadline',
    'endtime',
    'validuntil',
    'validtime',
    'expire',
    'expires',
    'expiration',
    'expiry',
    'expired',
    'expiretimestamp',
    'endat',
    'expiredseconds',
    'expireseconds',
    'expiresin',
    'expirein',
    'remainingseconds',
    'remainseconds',
    'leftseconds',
    'remaining',
    'remain',
    'lefttime',
    'remaintime',
    'ipremain',
    'timeleft',
    'timeout',
    'ttl',
    'seconds',
    'lifetime',
    'alivetime',
    'datetime',
    'epoch',
  ],
  minutes: ['minutes', 'minute', 'expireminutes', 'remainingminutes', 'leftminutes'],
  /**
   * The field contains the whole lifetime in minutes. If there is a `since` field, the lifetime begins at the time in that field.
   */
  wholeMinutes: ['during', 'duration'],
  since: ['starttime', 'begintime', 'onlinetime', 'createtime'],
} as const;

type FieldMeaning = keyof typeof NAMES;

/** The fields of an entry. The keys are the names in lower case without `_` and `-`. */
export type EntryFields = ReadonlyMap<string, NamedField>;

export interface NamedField {
  readonly name: string;
  readonly value: unknown;
}

/** The maximum number of fields that noria reads from one object. */
const MAX_FIELDS = 100;

/**
 * Returns the fields of an entry, and the fields of the objects inside it. The key of an inner field is its own name
 * without the name of the object. If the entry has a field with the same name, returns the field of the entry.
 */
export function entryFields(entry: object): EntryFields {
  const fields = new Map<string, NamedField>();
  const inner: object[] = [];
  for (const [name, value] of firstFields(entry)) {
    if (typeof value === 'object' && value !== null) inner.push(value);
    else add(fields, name, value);
  }
  for (const object of inner) {
    if (Array.isArray(object)) continue;
    for (const [name, value] of firstFields(object)) {
      if (typeof value !== 'object') add(fields, name, value);
    }
  }
  return fields;
}

/** Returns the fields with this meaning, the field with the most specific name first. */
export function fieldsMeaning(fields: EntryFields, meaning: FieldMeaning): NamedField[] {
  return NAMES[meaning].flatMap((name) => fields.get(name) ?? []);
}

function firstFields(object: object): [string, unknown][] {
  const names = Object.keys(object).slice(0, MAX_FIELDS);
  return names.map((name) => [name, Reflect.get(object, name)]);
}

function add(fields: Map<string, NamedField>, name: string, value: unknown): void {
  if (value === null || value === undefined || value === '') return;
  const plain = name.replace(/[_-]/g, '').toLowerCase();
  if (!fields.has(plain)) fields.set(plain, { name, value });
}
