/** tinyproxy with default settings, in front of the members of the benchmark's world. */
import { serveForeign } from './subject-foreign.ts';

serveForeign('tinyproxy');
