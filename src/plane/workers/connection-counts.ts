/** How many client connections each worker has open, by listener: counted from what it tells. */
export class ConnectionCounts {
  readonly #byWorker = new Map<number, Map<string, number>>();

  opened(worker: number, listener: string): void {
    this.#add(worker, listener, 1);
  }

  closed(worker: number, listener: string): void {
    this.#add(worker, listener, -1);
  }

  /** Of all workers. */
  of(listener: string): number {
    let sum = 0;
    for (const counts of this.#byWorker.values()) sum += counts.get(listener) ?? 0;
    return sum;
  }

  /** The worker has ended. @returns the listener of each connection that ended with it. */
  gone(worker: number): string[] {
    const counts = this.#byWorker.get(worker) ?? new Map<string, number>();
    this.#byWorker.delete(worker);
    return [...counts].flatMap(([listener, count]) => Array<string>(count).fill(listener));
  }

  #add(worker: number, listener: string, change: number): void {
    let counts = this.#byWorker.get(worker);
    if (counts === undefined) {
      counts = new Map();
      this.#byWorker.set(worker, counts);
    }
    counts.set(listener, (counts.get(listener) ?? 0) + change);
  }
}
