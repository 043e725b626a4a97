/* What Slurm looks for in every plugin, without Slurm's headers, for any release. */
#include <stdint.h>

extern long slurm_api_version(void);

const char plugin_name[] = PLUGIN_NAME;
const char plugin_type[] = "spank";
unsigned int plugin_version;

/* Slurm compares the word with its own release's: API number 38 is 22.05, 39 is 23.02,
 * 40 is 23.11; from 24.05 on there are two releases a year (META in Slurm's sources). */
__attribute__((constructor)) static void set_version(void)
{
	static const unsigned int early[] = { 0x160500, 0x170200, 0x170b00 };
	unsigned int number = slurm_api_version() >> 16;

	if (number >= 38 && number <= 40)
		plugin_version = early[number - 38];
	else if (number >= 41)
		plugin_version = (24 + (number - 41) / 2) << 16 |
				 ((number - 41) % 2 ? 0x0b00 : 0x0500);
}
