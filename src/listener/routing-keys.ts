/**
 * The grammar of routing options as a table: each key with its other names, its value and its effect.
 *
 * routing-options.ts uses the table to parse. docs/routing.md contains the same table; test/held/routing.test.ts
 * compares the two.
 */
import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';

export type RoutingKeyName = 'session' | 'ttl' | 'source' | 'adr' | 'life' | 'protocol' | 'rotate';

export interface RoutingKey {
  readonly key: RoutingKeyName;
  /** The names that clients of other gateways use for this key. */
  readonly aliases: readonly string[];
  /** Describes a valid value. Error messages contain it after the word `expected`. Absent if the key has no value. */
  readonly value?: string;
  readonly effect: string;
  /**
   * Only for durations: the unit, in ms, that noria assumes for a value without a unit. It depends on the name of the
   * key: `ttl-5` means 5 seconds, and `sesstime-5` means 5 minutes. Default: one second.
   */
  readonly bareUnitMs?: Readonly<Record<string, number>>;
}

/** Names are in lower case and unique in the table. */
export const ROUTING_KEYS: readonly RoutingKey[] = [
  {
    key: 'session',
    aliases: ['sessid', 'sid', 'sessionid'],
    value: '1 to 64 of letters, digits, `_`, `.` and `~`',
    effect:
      'all connections with this session name use one member; before that member expires, the session moves to another one',
  },
  {
    key: 'ttl',
    aliases: ['sesstime', 'sessionduration', 'sessionttl', 'sessionlength', 'lifetime'],
    value: 'a duration',
    effect: 'how long the session may be idle',
    bareUnitMs: {
      ttl: SECOND_MS,
      sesstime: MINUTE_MS,
      sessionduration: MINUTE_MS,
      sessionttl: MINUTE_MS,
      sessionlength: SECOND_MS,
      lifetime: MINUTE_MS,
    },
  },
  {
    key: 'source',
    aliases: ['pool', 'zone'],
    value: "a source's name",
    effect: 'only members of this source',
  },
  {
    key: 'adr',
    aliases: ['country', 'cc', 'state', 'city', 'region', 'area'],
    value: 'a keyword of at most 64 characters, URL-encoded where needed, `_` for a space',
    effect: 'only members whose location contains the keyword',
  },
  {
    key: 'life',
    aliases: ['minlife'],
    value: 'a duration',
    effect: 'only members with at least this much lifetime left',
    bareUnitMs: { life: SECOND_MS, minlife: SECOND_MS },
  },
  {
    key: 'protocol',
    aliases: [],
    value: MEMBER_PROTOCOLS.map((protocol) => `\`${protocol}\``).join(', '),
    effect: 'only members that speak this protocol',
  },
  {
    key: 'rotate',
    aliases: [],
    effect: 'ignores the session that the listener assigns, so noria may pick any member',
  },
];
