"""Campaign, zygote and children: kernels run where they may hang, crash or exit."""
