/**
 * Packs the events that workers send to the primary. One message holds many events in columns.
 *
 * The message contains each key name only once. If all events of a kind have the same value for a key, the message
 * contains this value only once. The message has a tenth of the size of the separate events.
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

interface EventGroup {
  readonly name: ForwardedEventName;
  readonly keys: readonly string[];
  readonly columns: readonly Column[];
}

export interface EventColumns {
  readonly kind: 'events';
  readonly groups: readonly EventGroup[];
  /** For each event, in order: the index in `groups` of the group that contains the event. */
  readonly order: readonly number[];
}

/** Numbers are rounded to 1/1,000. So durations, which are in ms, are rounded to a microsecond. */
const PRECISION = 1_000;

class GroupBuilder {
  readonly index: number;
  readonly name: ForwardedEventName;
  readonly keys: readonly string[];
  readonly #values: Value[][];

  constructor(index: number, name: ForwardedEventName, event: object) {
    this.index = index;
    this.name = name;
    this.keys = Object.keys(event);
    this.#values = this.keys.map(() => []);
  }

  fits(event: object): boolean {
    let count = 0;
    for (const key in event) {
      if (this.keys[count] !== key) return false;
      count += 1;
    }
    return count === this.keys.length;
  }

  add(event: object): void {
    let at = 0;
    for (const value of Object.values(event) as Value[]) {
      this.#values[at]?.push(typeof value === 'number' ? Math.round(value * PRECISION) / PRECISION : value);
      at += 1;
    }
  }

  build(): EventGroup {
    return { name: this.name, keys: this.keys, columns: this.#values.map(toColumn) };
  }
}

export function packEvents(events: readonly ForwardedEvent[]): EventColumns {
  const groups: GroupBuilder[] = [];
  const order: number[] = [];
  for (const { name, event } of events) {
    let group = groups.find((each) => each.name === name && each.fits(event));
    if (group === undefined) {
      group = new GroupBuilder(groups.length, name, event);
      groups.push(group);
    }
    group.add(event);
    order.push(group.index);
  }
  return { kind: 'events', groups: groups.map((group) => group.build()), order };
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
