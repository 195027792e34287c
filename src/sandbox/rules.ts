/** Rules that answer calls instead of the service. The first rule that matches a call answers it. */
import type { SandboxOperationName } from './operations.ts';
import type { Rule, RuleAnswer } from './scenario.ts';

interface ActiveRule extends Rule {
  readonly id: string;
  /** The number of calls that the rule has answered. */
  readonly used: number;
}

interface Entry {
  readonly id: string;
  readonly rule: Rule;
  matched: number;
  used: number;
}

export class Rules {
  #entries: Entry[] = [];
  #added = 0;

  constructor(rules: readonly Rule[] = []) {
    for (const rule of rules) this.add(rule);
  }

  /**
   * Adds a rule after all others.
   * @returns the id of the rule.
   */
  add(rule: Rule): string {
    this.#added += 1;
    const id = `r${this.#added}`;
    this.#entries.push({ id, rule, matched: 0, used: 0 });
    return id;
  }

  /** Returns the rules in the order in which they are tried. */
  list(): readonly ActiveRule[] {
    return this.#entries.map(({ id, rule, used }) => ({ id, ...rule, used }));
  }

  /** @returns whether the rule existed. */
  remove(id: string): boolean {
    const before = this.#entries.length;
    this.#entries = this.#entries.filter((entry) => entry.id !== id);
    return this.#entries.length < before;
  }

  clear(): void {
    this.#entries = [];
  }

  /**
   * Returns the answer of the first matching rule, and removes the rule after its last answer. Returns undefined if no
   * rule matches.
   */
  answerTo(operation: SandboxOperationName, instance: string): RuleAnswer | undefined {
    for (const entry of this.#entries) {
      const { rule } = entry;
      if (rule.operation !== undefined && rule.operation !== operation) continue;
      if (rule.instance !== undefined && rule.instance !== instance) continue;
      entry.matched += 1;
      if (entry.matched <= (rule.after ?? 0)) continue;
      entry.used += 1;
      if (entry.used >= (rule.times ?? Number.POSITIVE_INFINITY)) this.remove(entry.id);
      return rule.answer;
    }
    return undefined;
  }
}
