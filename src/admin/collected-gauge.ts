/** A gauge whose samples are read when the metrics are collected. */
import { Gauge, type Registry } from 'prom-client';

interface GaugeTerms<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly Label[];
}

export function addGauge<Label extends string = never>(
  registry: Registry,
  { name, help, labels = [] }: GaugeTerms<Label>,
  read: (gauge: Gauge<Label>) => void,
): void {
  new Gauge({
    name,
    help,
    labelNames: labels,
    registers: [registry],
    collect() {
      this.reset(); // removes the samples of sources, listeners and a fleet that no longer exist
      read(this);
    },
  });
}
