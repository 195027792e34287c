/**
 * Answers on demand: rules that say what calls are answered instead of what the service would say.
 *
 * The first rule that fits a call takes it; one with `times` is gone once it is used up.
 */
import type { SandboxOperationName } from './operations.ts';

/** What the transport, or a server in between, does to an answer. From `delay` on the service decides the call first. */
export type ServiceFault =
  /** The port is closed for `forMs` (default 1000), for this and every other call. */
  | { readonly fault: 'refuse'; readonly forMs?: number | undefined }
  | { readonly fault: 'reset' }
  /** The connection ends without an answer. */
  | { readonly fault: 'close' }
  /** No answer, ever. */
  | { readonly fault: 'hang' }
  /** An HTTP status with an HTML page, as a firewall in between sends it. */
  | { readonly fault: 'status'; readonly status: number }
  | { readonly fault: 'garbage' }
  /** 302 to `to`; default the same call at another path of this server. */
  | { readonly fault: 'redirect'; readonly to?: string | undefined }
  /** A body of `bytes` (default 8 MiB) that begins like JSON. */
  | { readonly fault: 'huge'; readonly bytes?: number | undefined }
  /** The service's answer, `ms` late. */
  | { readonly fault: 'delay'; readonly ms: number }
  /** The head at once, the body in small pieces over `ms`. */
  | { readonly fault: 'slow'; readonly ms: number }
  /** In another format than the one asked for. */
  | { readonly fault: 'wrong-format' }
  /** With a byte order mark. */
  | { readonly fault: 'bom' }
  /** Half of the body, then the end. */
  | { readonly fault: 'truncated' };

export type RuleAnswer =
  /** The service's own refusal; `10001` gives an empty list. */
  | { readonly code: string; readonly msg?: string | undefined }
  /** These very bytes as UTF-8. */
  | { readonly body: string; readonly contentType?: string | undefined; readonly status?: number | undefined }
  | ServiceFault;

export interface Rule {
  /** Default: calls of every operation. */
  readonly operation?: SandboxOperationName | undefined;
  /** Default: of every instance. */
  readonly instance?: string | undefined;
  /** Fitting calls that it lets pass first. Default 0. */
  readonly after?: number | undefined;
  /** Calls that it answers. Default: all until it is removed. */
  readonly times?: number | undefined;
  readonly answer: RuleAnswer;
}

/** A rule in force. */
export interface KnownRule extends Rule {
  readonly id: string;
  /** Calls that it answered. */
  readonly used: number;
}

interface Entry {
  readonly id: string;
  readonly rule: Rule;
  seen: number;
  used: number;
}

export class Rules {
  #entries: Entry[] = [];
  #added = 0;

  constructor(rules: readonly Rule[] = []) {
    for (const rule of rules) this.add(rule);
  }

  /** Adds a rule after the others. @returns its id. */
  add(rule: Rule): string {
    this.#added += 1;
    const id = `r${this.#added}`;
    this.#entries.push({ id, rule, seen: 0, used: 0 });
    return id;
  }

  /** Rules in force, in order. */
  list(): readonly KnownRule[] {
    return this.#entries.map(({ id, rule, used }) => ({ id, ...rule, used }));
  }

  /** @returns whether there was such a rule. */
  remove(id: string): boolean {
    const before = this.#entries.length;
    this.#entries = this.#entries.filter((entry) => entry.id !== id);
    return this.#entries.length < before;
  }

  clear(): void {
    this.#entries = [];
  }

  /** The answer of the first rule that fits a call, counting it. */
  take(operation: SandboxOperationName, instance: string): RuleAnswer | undefined {
    for (const entry of this.#entries) {
      const { rule } = entry;
      if (rule.operation !== undefined && rule.operation !== operation) continue;
      if (rule.instance !== undefined && rule.instance !== instance) continue;
      entry.seen += 1;
      if (entry.seen <= (rule.after ?? 0)) continue;
      entry.used += 1;
      if (entry.used >= (rule.times ?? Number.POSITIVE_INFINITY)) this.remove(entry.id);
      return rule.answer;
    }
    return undefined;
  }
}
