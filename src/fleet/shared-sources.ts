/**
 * Gives all replicas the same two facts about each source: the operator's last pause or resume, and the service's last
 * answer about the instance. Publishes both again if a loaded state lacks them.
 */
import type { InstanceReport } from '../refill/reaction.ts';
import { SAME_MOMENT_MS } from './records.ts';
import type { Fact, SharedState, SourceCommand, SourceReport } from './schemas.ts';

interface SharedSourcesOptions {
  readonly publish: (fact: Fact) => void;
  readonly onCommand?: ((command: SourceCommand) => void) | undefined;
  readonly onReport?: ((report: SourceReport) => void) | undefined;
}

export class SharedSources {
  readonly #options: SharedSourcesOptions;
  readonly #commands = new Map<string, SourceCommand>();
  readonly #reports = new Map<string, SourceReport>();

  constructor(options: SharedSourcesOptions) {
    this.#options = options;
  }

  command(source: string, command: SourceCommand['command']): void {
    const fact: SourceCommand = { kind: 'source.commanded', source, command };
    if (command !== 'refill') this.#commands.set(source, fact);
    this.#options.publish(fact);
  }

  report(source: string, report: InstanceReport): void {
    const fact: SourceReport = { ...report, quota: { ...report.quota }, kind: 'source.reported', source };
    this.#reports.set(source, fact);
    this.#options.publish(fact);
  }

  receiveFact(fact: SourceCommand | SourceReport): void {
    if (fact.kind === 'source.reported') {
      this.#reports.set(fact.source, fact);
      this.#options.onReport?.(fact);
      return;
    }
    if (fact.command !== 'refill') this.#commands.set(fact.source, fact);
    this.#options.onCommand?.(fact);
  }

  /**
   * Applies a loaded state, and publishes what the state lacks.
   * @param isInFlight - returns whether this replica has published a command for the source that the log has not yet
   * delivered.
   */
  receiveState(state: SharedState, isInFlight: (source: string) => boolean): void {
    this.#loadCommands(state, isInFlight);
    this.#loadReports(state.reports ?? []);
  }

  #loadCommands({ paused, resumed = [] }: SharedState, isInFlight: (source: string) => boolean): void {
    const loaded = new Map<string, SourceCommand['command']>([
      ...resumed.map((source) => [source, 'resume'] as const),
      ...paused.map((source) => [source, 'pause'] as const),
    ]);
    for (const own of this.#commands.values()) {
      if (isInFlight(own.source) || !loaded.has(own.source)) this.#options.publish(own);
    }
    for (const [source, command] of loaded) {
      const known = this.#commands.get(source)?.command ?? 'resume';
      if (isInFlight(source) || command === known) continue;
      this.receiveFact({ kind: 'source.commanded', source, command });
    }
  }

  #loadReports(reports: readonly SourceReport[]): void {
    const loaded = new Set(reports.map(({ source }) => source));
    for (const own of this.#reports.values()) if (!loaded.has(own.source)) this.#options.publish(own);
    for (const report of reports) {
      if (!isSameReport(report, this.#reports.get(report.source))) this.receiveFact(report);
    }
  }
}

function isSameReport({ suspension }: SourceReport, known: SourceReport | undefined): boolean {
  if (known === undefined) return false;
  const [until = Infinity, knownUntil = Infinity] = [suspension?.untilAt, known.suspension?.untilAt];
  const isSameEnd = until === knownUntil || Math.abs(until - knownUntil) < SAME_MOMENT_MS;
  return suspension?.code === known.suspension?.code && isSameEnd;
}
