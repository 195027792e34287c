/** Opens the parts of noria that share its state with other norias, and reports the state of the fleet. */

import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { z } from 'zod';
import type { Status } from '../admin/schemas.ts';
import type { FleetConfig } from '../config/config.ts';
import { formatStoreUrl } from '../config/scalars.ts';
import type { Clock } from '../core/clock.ts';
import { systemBoot } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import type { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { readVersion } from '../core/version.ts';
import type { StoreAddress } from '../fleet/redis/connection.ts';
import type { FleetObserver } from '../fleet/redis/redis-shared-pool.ts';
import type { FleetInstance } from '../fleet/redis/seal.ts';
import type { FleetStore } from '../fleet/redis/store.ts';
import { Replica } from '../fleet/replica.ts';
import type { SourceCommand, SourceRefusal, SourceReport } from '../fleet/schemas.ts';
import type { FleetPool } from '../fleet/shared-pool.ts';
import { type SourceKeys, withSourceKeys } from '../fleet/source-keys.ts';
import type { Pool } from '../pool/pool.ts';
import type { SharedCount } from '../refill/source-statistics.ts';
import type { SourceStatus } from '../refill/status.ts';
import { createTimekeeper } from '../state/moment.ts';

export interface FleetConnector {
  readonly name: string;
  readonly replica: string;
  open(options: ConnectOptions): Promise<FleetPool>;
}

interface ConnectOptions {
  /** What `Fleet.record` returned in an earlier run. The snapshot stores it. */
  readonly restored: unknown;
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly instances: () => readonly FleetInstance[];
  readonly refuses: (host: string, port: number) => string | undefined;
  readonly clients: () => number;
  readonly refusals: () => readonly SourceRefusal[];
  readonly callTimeoutMs: () => number;
}

export type Fleet = Awaited<ReturnType<typeof createFleet>>;

const SUFFIX_BYTES = 3;
const BEAT_MS = 1_000;
/** If one noria were enough, a noria with a broken network could empty the shared pool. */
const EVICTION_VOTES = 2;

export async function createFleet(
  options: ConnectOptions & {
    readonly connector: FleetConnector;
    readonly pool: Pool;
    readonly sources: SourceKeys;
    readonly onCommand: (command: SourceCommand) => void;
    readonly onReport: (report: SourceReport) => void;
  },
) {
  const { connector, clock, bus, pool, sources, onCommand, onReport } = options;
  const shared = await connector.open(options);
  const replica = new Replica({
    ...{ name: connector.replica, clock, bus, pool, onCommand, onReport },
    shared: withSourceKeys(shared, sources),
    sameMachine: false,
    servesClients: true,
    evictionVotes: (replicas) => Math.min(EVICTION_VOTES, Math.max(1, replicas)),
    beatMs: BEAT_MS,
  });
  const { dayCounts } = shared;
  return {
    shared,
    replica,
    sharedCount: (source: string): SharedCount => ({
      add: (ips) => dayCounts.add(sources.keyOf(source), ips),
      used: () => dayCounts.used(sources.keyOf(source)),
    }),
    status: (): NonNullable<Status['fleet']> => ({
      name: connector.name,
      replica: connector.replica,
      store: shared.fault === undefined ? 'connected' : 'lost',
      reason: shared.fault?.message ?? null,
      lostForSeconds: Math.floor(shared.lostMs / SECOND_MS),
      replicas: [...shared.replicas],
    }),
    record: () => ({ name: connector.name, epoch: shared.epochId }),
  };
}

export function storeConnector(config: FleetConfig): FleetConnector {
  const { name, replica = randomReplicaName() } = config;
  return {
    name,
    replica,
    async open({ restored, clock, random, bus, ...rest }) {
      const { RedisSharedPool } = await import('../fleet/redis/redis-shared-pool.ts');
      return new RedisSharedPool({
        address: storeAddressOf(config),
        name,
        replica,
        version: readVersion(),
        clock,
        random,
        timekeeper: createTimekeeper(clock, systemBoot()),
        rememberedEpoch: epochIn(restored, name),
        ...rest,
        observer: observe(bus, replica),
        onTiming: (operation, ms) => bus.emit('fleet.answered', { operation, ms }),
      });
    },
  };
}

/** The sources that are suspended by their own last call, not by a command or the report of another noria. */
export function refusalsOf(statuses: readonly SourceStatus[], { keyOf }: SourceKeys): SourceRefusal[] {
  return statuses.flatMap(({ name, state, reason, advice, meaning }) => {
    const isRefused = (state === 'halted' || state === 'paused') && reason === meaning;
    return isRefused ? [{ source: keyOf(name), reason, advice: advice ?? '' }] : [];
  });
}

const recordSchema = z.object({ name: z.string(), epoch: z.string() });

/** Undefined if `record` belongs to another fleet. */
function epochIn(record: unknown, name: string): string | undefined {
  const { data } = recordSchema.safeParse(record);
  return data?.name === name ? data.epoch : undefined;
}

/** Connects to the store without joining the fleet. @throws NoriaError fleet-store-lost, fleet-store-unusable */
export async function connectStore(config: FleetConfig, clock: Clock, random: Random): Promise<FleetStore> {
  const { openFleetStore } = await import('../fleet/redis/read-fleet.ts');
  const timekeeper = createTimekeeper(clock, systemBoot());
  return openFleetStore({ address: storeAddressOf(config), name: config.name, clock, random, timekeeper });
}

export function storeAddressOf({ url, tls, sentinel }: FleetConfig): StoreAddress {
  const { host, port, username, password, database } = url;
  const login = { ...(username !== undefined && { username }), ...(password !== undefined && { password }) };
  const { ca, cert, key } = tls ?? {};
  const certificates = {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
  };
  const server = { host, port, login, tls: url.tls ? certificates : undefined, database };
  if (sentinel === undefined)
    return { label: formatStoreUrl({ ...url, username: undefined, password: undefined }), server };
  return { label: `the primary ${sentinel.primary}`, server, sentinel };
}

/** Reports a loss of the store once, and a second time if the store then refuses noria. */
function observe(bus: EventBus, replica: string): FleetObserver {
  let reported: NoriaError['code'] | undefined;
  return {
    connected() {
      reported = undefined;
      bus.emit('fleet.store', { up: true });
    },
    lost({ code, message }: NoriaError) {
      if (reported === code) return;
      reported = code;
      bus.emit('fleet.store', { up: false, reason: message, code });
    },
    claimed: (outcome) => bus.emit('fleet.claimed', { outcome }),
    lagged: (lagMs) => bus.emit('fleet.followed', { lagMs }),
    unagreed: () => bus.emit('fleet.unagreed', {}),
    warned: (message) => bus.emit('fleet.warned', { message }),
    nameTaken: () =>
      bus.emit('fleet.warned', {
        message: `another noria of the fleet is named ${replica}, too; set fleet.replica to a unique name`,
      }),
  };
}

function randomReplicaName(): string {
  const host = hostname()
    .replace(/[^A-Za-z0-9._-]/g, '-')
    .slice(0, 50);
  return `${host}-${randomBytes(SUFFIX_BYTES).toString('hex')}`;
}
