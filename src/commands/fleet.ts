/**
 * `noria fleet`: prints what the fleet's store contains: the replicas, the pace of each instance, and the shared pool.
 */

import type { Config, SourceConfig } from '../config/config.ts';
import { translate } from '../core/chinese.ts';
import { holdingClock, systemBoot } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { systemRandom } from '../core/random.ts';
import { formatCount } from '../core/words.ts';
import { connectStore } from '../daemon/fleet.ts';
import { fleetInstances } from '../daemon/part-options.ts';
import type { FleetStore } from '../fleet/redis/store.ts';
import type { SharedState, SourceReport } from '../fleet/schemas.ts';
import { paceKey } from '../refill/pace.ts';
import { waitBefore } from '../refill/pace-rule.ts';
import { describeOutcome, type InstanceReport } from '../refill/reaction.ts';
import { createTimekeeper } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import { command } from './command.ts';
import { CONFIG_FLAG, readConfig } from './config.ts';
import type { ServiceFlags } from './service.ts';
import { roughSeconds } from './status.ts';
import { formatTable, numbers } from './table.ts';
import { languageOfTerminal, printResult, type Terminal } from './terminal.ts';

type FleetReport = Awaited<ReturnType<typeof readReport>>;

export const fleetCommand = command({
  name: 'fleet',
  about: 'list the norias of the fleet, the pace of each source and the shared pool, from the store',
  flags: [['--json', 'print JSON'], CONFIG_FLAG],
  examples: ['fleet', 'fleet -c /etc/noria/noria.yaml --json'],
  help: 'This command needs no running noria. Exit codes: 0 fine, 1 the store refuses noria, 2 no fleet in the configuration, 3 store unreachable.',
  run: async ({ terminal }, flags: ServiceFlags) => {
    const config = readConfig(flags.config, terminal);
    if (config.fleet === undefined) {
      throw new NoriaError(
        'bad-config',
        `${config.file}: fleet: missing; the command "noria fleet" requires the address of the store`,
      );
    }
    const store = await connectStore(config.fleet, holdingClock, systemRandom);
    try {
      const report = await readReport(config, config.fleet.name, store);
      printResult(terminal, flags, report, () => formatReport(report, terminal));
    } finally {
      await store.close();
    }
  },
});

async function readReport(config: Config, name: string, store: FleetStore) {
  const { countSessions, differencesOf, readInstance } = await import('../fleet/redis/read-fleet.ts');
  const { readReplicas } = await import('../fleet/redis/beat-exchange.ts');
  const { RedisPaceStore } = await import('../fleet/redis/pace-store.ts');
  const { stopwatch } = createTimekeeper(holdingClock, systemBoot());
  const callTimeoutMs = () => config.service.timeoutMs;
  const pace = new RedisPaceStore({ store, clock: holdingClock, stopwatch, callTimeoutMs });
  const configured = fleetInstances(config).map((each) => ({ source: each.key, ...each.settings }));
  const warnings: string[] = [];
  const states = new Map<string, SharedState>();
  for (const instance of fleetInstances(config)) {
    const onUnreadable = (where: string, why: string) => warnings.push(`ignored ${where}: ${why}`);
    states.set(instance.key, await readInstance(store, instance, onUnreadable));
  }
  const { now } = store;
  const present = [...states.values()]
    .flatMap(({ members }) => members)
    .filter(({ left }) => left === undefined);
  const replicas = await readReplicas(store);
  const sourceReports = config.sources.map(async (source) => {
    const key = paceKey(source);
    const { paused = [], reports = [] } = states.get(key) ?? {};
    const suspension = suspensionOf(reports, key, now);
    const refusal = suspension === undefined ? null : refusalOf(suspension, source.name);
    const own = present.filter(({ member }) => member.source === key);
    return {
      name: source.name,
      members: own.length,
      quarantined: own.filter(({ quarantine }) => (quarantine?.untilAt ?? 0) > now).length,
      paused: paused.includes(key) || suspension?.phase === 'paused',
      halted: suspension?.phase === 'halted',
      refusal,
      // those that draw nothing because the service refused their own call; the others may draw
      refusedReplicas: replicas.flatMap(({ name: replica, refusals = [] }) =>
        refusals
          .filter((refused) => refused.source === key && refused.reason !== refusal?.reason)
          .map(({ reason, advice }) => ({ replica, reason, advice })),
      ),
      ...(await readPace(pace, key, source)),
    };
  });
  return {
    name,
    replicas: replicas.map(({ name: replica, version, clients, lastSeenSeconds }) => ({
      ...{ name: replica, version, clients, lastSeenSeconds },
      drew: present.filter(({ drawnBy }) => drawnBy === replica).length,
    })),
    sources: await Promise.all(sourceReports),
    sessions: await countSessions(store),
    differences: replicas.flatMap(({ name: replica, instances: theirs = [] }) =>
      differencesOf(configured, theirs).map((difference) => ({ replica, difference })),
    ),
    warnings,
  };
}

function suspensionOf(
  reports: readonly SourceReport[],
  key: string,
  now: number,
): InstanceReport['suspension'] {
  const suspension = reports.find(({ source }) => source === key)?.suspension;
  return (suspension?.untilAt ?? Infinity) > now ? suspension : undefined;
}

function refusalOf(suspension: NonNullable<InstanceReport['suspension']>, source: string) {
  const { phase, advice } = suspension;
  const then = phase === 'halted' ? ` Then run noria resume ${source}.` : '';
  return { reason: describeOutcome(suspension), advice: `${advice}${then}` };
}

function readPace(pace: PaceStore, key: string, { intervalMs }: SourceConfig) {
  return pace.change(key, (entry, now) => ({
    result: {
      calling: entry?.call?.fate === 'pending',
      nextCallSeconds:
        entry === undefined ? 0 : Math.ceil(waitBefore(entry, now, { intervalMs }) / SECOND_MS),
      waiting: entry?.queue.length ?? 0,
    },
  }));
}

function formatReport(
  { name, replicas, sources, sessions, differences, warnings }: FleetReport,
  terminal: Terminal,
): string[] {
  const { columns } = terminal;
  const said = ({ reason, advice }: ReturnType<typeof refusalOf>) =>
    [reason, advice].map((text) => translate(text, languageOfTerminal(terminal))).join(' ');
  return [
    `fleet ${name}: ${formatCount(replicas.length, 'noria')}, ${formatCount(sessions, 'session')}`,
    '',
    ...formatTable(
      replicas,
      [
        { title: 'NORIA', cell: (replica) => replica.name },
        numbers('CLIENTS', ({ clients }) => clients),
        numbers('DREW', ({ drew }) => formatCount(drew, 'member')),
        numbers('SEEN', ({ lastSeenSeconds: seconds }) => `${seconds} s ago`),
        { title: 'VERSION', cell: ({ version }) => version, optional: true },
      ],
      columns,
    ),
    '',
    ...formatTable(
      sources,
      [
        { title: 'SOURCE', cell: (source) => source.name },
        numbers('MEMBERS', ({ members }) => members),
        numbers('QUARANTINED', ({ quarantined }) => quarantined),
        numbers('NEXT CALL', nextCall),
        numbers('WAITING', ({ waiting }) => formatCount(waiting, 'noria')),
      ],
      columns,
    ),
    ...sources.flatMap(({ name: source, refusal, refusedReplicas }) => [
      ...(refusal === null ? [] : ['', `source ${source}: ${said(refusal)}`]),
      ...refusedReplicas.flatMap(({ replica, reason, advice }) => [
        '',
        `source ${source}: noria ${replica} does not draw; the other norias continue. ${said({ reason, advice })}`,
      ]),
    ]),
    ...differences.flatMap(({ replica, difference }) => [
      '',
      `noria ${replica} has ${difference}; give all norias of the fleet the same configuration`,
    ]),
    ...warnings.flatMap((warning) => ['', `warning: ${warning}`]),
  ];
}

function nextCall({ paused, halted, calling, nextCallSeconds }: FleetReport['sources'][number]): string {
  if (paused) return 'paused';
  if (halted) return 'halted';
  if (calling) return 'calling';
  return nextCallSeconds === 0 ? 'when needed' : `in ${roughSeconds(nextCallSeconds)}`;
}
