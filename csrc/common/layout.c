/* The layouts of the structures that Python fills in, for the loader to compare with its own. */
#include "integer/program.h"
#include "sudonet.h"

#include <stddef.h>

#define SIZE(structure) {#structure, "", 0, sizeof(structure)}
#define FIELD(structure, field) \
    {#structure, #field, offsetof(structure, field), sizeof(((structure *)0)->field)}
#define UNIT(field) FIELD(sudo_unit, field)
#define NETWORK(field) FIELD(sudo_network, field)
#define EPILOGUE(field) FIELD(sudo_epilogue, field)
#define AXIS(field) FIELD(sudo_axis, field)
#define PART(field) FIELD(sudo_part, field)
#define STEP(field) FIELD(sudo_step, field)
#define PROGRAM(field) FIELD(sudo_program, field)
#define CALL(field) FIELD(sudo_call, field)

/* clang-format off */
static const sudo_layout LAYOUTS[] = {
    SIZE(sudo_unit), UNIT(underlying), UNIT(rectified), UNIT(count), UNIT(thresholds),
    UNIT(values), UNIT(stretch), UNIT(scale), UNIT(offset), UNIT(low), UNIT(high),
    UNIT(tolerance), UNIT(centre), UNIT(factor), UNIT(span),

    SIZE(sudo_network), NETWORK(layers), NETWORK(sizes), NETWORK(units), NETWORK(lanes),
    NETWORK(loss), NETWORK(optimiser), NETWORK(rate), NETWORK(beta1), NETWORK(beta2),
    NETWORK(epsilon), NETWORK(beta1_power), NETWORK(beta2_power), NETWORK(weights),
    NETWORK(moment1), NETWORK(moment2), NETWORK(step), NETWORK(diverged),

    SIZE(sudo_epilogue), EPILOGUE(kind), EPILOGUE(count), EPILOGUE(group_size),
    EPILOGUE(odd_codes), EPILOGUE(base), EPILOGUE(thresholds), EPILOGUE(scale), EPILOGUE(offset),
    EPILOGUE(bin_thresholds), EPILOGUE(bin_codes), EPILOGUE(max_position), EPILOGUE(tolerance),
    EPILOGUE(factor), EPILOGUE(constant), EPILOGUE(table), EPILOGUE(lookup), EPILOGUE(origin),
    EPILOGUE(shift), EPILOGUE(last_bin), EPILOGUE(max_steps),

    SIZE(sudo_axis), AXIS(first), AXIS(step), AXIS(count), AXIS(stride), AXIS(classes),

    SIZE(sudo_part), PART(first_in), PART(inputs), PART(first_out), PART(outputs), PART(terms),
    PART(weight_layout), PART(direct), PART(segments), PART(segment_bytes), PART(segment_offsets),
    PART(padded), PART(padding_top), PART(padding_left), PART(padded_rows), PART(padded_columns),
    PART(safe_pairs), PART(max_windows), PART(rows), PART(columns), PART(weights), PART(fold),
    PART(tail), PART(corrections), PART(column_classes), PART(epilogue),

    SIZE(sudo_step), STEP(kind), STEP(type_in), STEP(type_out), STEP(channels_in), STEP(rows_in),
    STEP(columns_in), STEP(channels_out), STEP(rows_out), STEP(columns_out), STEP(part_count),
    STEP(parts), STEP(kernel), STEP(stride), STEP(padding), STEP(initial), STEP(channels_first),

    SIZE(sudo_program), PROGRAM(step_count), PROGRAM(max_examples), PROGRAM(steps),
    PROGRAM(example_stride), PROGRAM(scratch_bytes),

    SIZE(sudo_call), CALL(path), CALL(program), CALL(x), CALL(out), CALL(batch), CALL(scratch),

    {NULL, NULL, 0, 0}
};
/* clang-format on */

const sudo_layout *sudo_layouts(void) { return LAYOUTS; }
