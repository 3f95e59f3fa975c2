from acid.cli import main

main()
