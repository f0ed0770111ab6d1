from sudonet.cli import main

main()
