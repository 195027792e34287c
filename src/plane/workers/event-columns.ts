/**
 * Packs the events that workers send to the primary: each name of a key once, and a value that all events of a kind share once. The message
 * has a tenth of the size of the separate events.
 */
import type { EventName, NoriaEvents } from '../../core/events.ts';

/**
 * The events of workers that the primary emits again on its own bus. Events of members and sessions are missing,
 * because the primary's pool emits these events itself.
 */
export const FORWARDED_EVENTS = [
  'connection.opened',
  'connection.closed',
  'client.refused',
  'dial.attempted',
  'dial.ended',
  'hedge.ended',
  'tunnel.closed',
  'request.ended',
  'request.grew',
  'client.waited',
] as const satisfies readonly EventName[];

export type ForwardedEventName = (typeof FORWARDED_EVENTS)[number];

export interface ForwardedEvent<Name extends ForwardedEventName = ForwardedEventName> {
  readonly kind: 'event';
  readonly name: Name;
  readonly event: NoriaEvents[Name];
}

type Value = string | number | boolean | object | undefined;

type Column = { readonly same: Value } | { readonly each: readonly Value[] };

export interface EventColumns {
  readonly kind: 'events';
  readonly groups: readonly {
    readonly name: ForwardedEventName;
    readonly keys: readonly string[];
    readonly columns: readonly Column[];
  }[];
  /** For each event, in order: the index in `groups` of the group that contains the event. */
  readonly order: readonly number[];
}

/** Numbers are rounded to 1/1,000. So durations, which are in ms, are rounded to a microsecond. */
const PRECISION = 1_000;

export function packEvents(events: readonly ForwardedEvent[]): EventColumns {
  const groups: { readonly name: ForwardedEventName; readonly keys: string[]; readonly values: Value[][] }[] =
    [];
  const order: number[] = [];
  for (const { name, event } of events) {
    let index = groups.findIndex((group) => group.name === name && hasKeys(event, group.keys));
    if (index < 0) {
      const keys = Object.keys(event);
      index = groups.push({ name, keys, values: keys.map(() => []) }) - 1;
    }
    const values = groups[index]?.values ?? [];
    let at = 0;
    for (const value of Object.values(event) as Value[]) {
      values[at]?.push(typeof value === 'number' ? Math.round(value * PRECISION) / PRECISION : value);
      at += 1;
    }
    order.push(index);
  }
  const columns = groups.map(({ name, keys, values }) => ({ name, keys, columns: values.map(toColumn) }));
  return { kind: 'events', groups: columns, order };
}

function hasKeys(event: object, keys: readonly string[]): boolean {
  let count = 0;
  for (const key in event) {
    if (keys[count] !== key) return false;
    count += 1;
  }
  return count === keys.length;
}

export function* unpackEvents({ groups, order }: EventColumns): Generator<ForwardedEvent> {
  const next = groups.map(() => 0);
  for (const index of order) {
    const group = groups[index];
    const row = next[index] ?? 0;
    next[index] = row + 1;
    if (group === undefined) continue;
    const event: Record<string, Value> = {};
    for (const [at, key] of group.keys.entries()) {
      const column = group.columns[at];
      if (column !== undefined) event[key] = 'same' in column ? column.same : column.each[row];
    }
    // TypeScript cannot know that `group.name` and the columns come from the same ForwardedEvent type.
    yield { kind: 'event', name: group.name, event } as unknown as ForwardedEvent;
  }
}

function toColumn(values: readonly Value[]): Column {
  const [same] = values;
  return values.every((value) => value === same) ? { same } : { each: values };
}
