/** Properties check the same random values in every run. With `NORIA_PROPERTY_SEED=random`, they check new random values. */
import fc from 'fast-check';

const seed = process.env['NORIA_PROPERTY_SEED'] ?? '1';
if (seed !== 'random') fc.configureGlobal({ seed: Number(seed) });
