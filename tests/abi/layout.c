/* Prints the layout of every public struct: what a program that was compiled earlier relies on. */
#include <qinfer/qinfer.h>
#include <stdio.h>

#define STRUCT(type) printf("%s size %u\n", #type, (unsigned)sizeof(type))
#define FIELD(type, name)                                                   \
  printf("  %-26s at %4u size %u\n", #name, (unsigned)offsetof(type, name), \
         (unsigned)sizeof(((type*)0)->name))

int main(void) {
#include "layout_fields.inc"
  return 0;
}
