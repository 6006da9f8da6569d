import com.linkedin.tony.TonyConfigurationKeys;
import com.linkedin.tony.events.ApplicationFinished;
import com.linkedin.tony.events.ApplicationInited;
import com.linkedin.tony.events.Event;
import com.linkedin.tony.events.EventHandler;
import com.linkedin.tony.events.EventType;
import com.linkedin.tony.events.Metric;
import com.linkedin.tony.events.TaskFinished;
import com.linkedin.tony.events.TaskStarted;
import com.linkedin.tony.models.JobMetadata;
import com.linkedin.tony.util.ParserUtils;
import com.linkedin.tony.util.Utils;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

/** Reads and writes a job's history by the JVM TonY's own classes: {@code read DIR}, {@code write DIR}. */
public class JvmHistory {
  private static final String APP = "application_1541469337545_0031";

  public static void main(String[] args) throws Exception {
    FileSystem fs = FileSystem.getLocal(new Configuration(false));
    Path folder = new Path(args[1]);
    if (args[0].equals("read")) {
      read(fs, folder);
    } else {
      write(fs, folder);
    }
    System.out.flush();
    System.exit(0); // threads of the file system may still be there
  }

  private static void read(FileSystem fs, Path folder) throws Exception {
    JobMetadata found = ParserUtils.parseMetadata(fs, new YarnConfiguration(), folder, "^application_\\d+_\\d+$");
    print("metadata", found == null ? "none"
        : String.join(" ", found.getId(), "" + found.getStarted(), "" + found.getCompleted(), found.getUser(), found.getStatus()));
    for (Event event : ParserUtils.parseEvents(fs, folder)) {
      print("event", event.getType() + " " + event.getTimestamp() + " " + event.getEvent());
    }
    print("properties", "" + ParserUtils.parseConfig(fs, folder).size());
    Configuration conf = new Configuration(false);
    conf.addResource(fs.open(new Path(folder, "tony-final.xml")));
    for (String role : Utils.getAllJobTypes(conf)) {
      String memory = conf.get(TonyConfigurationKeys.getResourceKey(role, "memory"));
      print("role", role + " " + Long.parseLong(Utils.parseMemoryString(memory)) + " "
          + conf.getInt(TonyConfigurationKeys.getResourceKey(role, "gpus"), 0) + " "
          + conf.getInt(TonyConfigurationKeys.getInstancesKey(role), 0));
    }
  }

  private static void print(String what, String text) {
    System.out.println(what + "\t" + text.replace("\n", "\\n"));
  }

  private static void write(FileSystem fs, Path folder) throws Exception {
    fs.mkdirs(folder);
    Configuration conf = new Configuration(false);
    conf.set("tony.application.name", "mnist", "tony.xml");
    conf.set("tony.worker.instances", "2", "tony.xml");
    conf.set("tony.worker.memory", "3g", "tony.xml");
    conf.set("tony.containers.envs", "DB_PASSWORD=hunter2000");
    try (OutputStream out = fs.create(new Path(folder, "tony-final.xml"))) {
      conf.writeXml(out);
    }
    LinkedBlockingQueue<Event> queue = new LinkedBlockingQueue<>();
    EventHandler handler = new EventHandler(fs, queue);
    JobMetadata.Builder job = new JobMetadata.Builder().setId(APP).setConf(new YarnConfiguration())
        .setStarted(1542325695566L).setUser("ann");
    handler.setUpThread(folder, job.build());
    handler.start();
    handler.emitEvent(new Event(EventType.APPLICATION_INITED, new ApplicationInited(APP, 2, "n0", "c_1"), 1542325700000L));
    for (int i = 0; i < 2; i++) {
      handler.emitEvent(new Event(EventType.TASK_STARTED, new TaskStarted("worker", i, "n" + i, "c_" + i), 1542325701000L));
    }
    List<Metric> metrics = new ArrayList<>();
    metrics.add(new Metric("MAX_MEMORY_BYTES", 2097152d));
    metrics.add(new Metric("MAX_GPU_UTILIZATION", -1d));
    handler.emitEvent(new Event(EventType.TASK_FINISHED, new TaskFinished("worker", 0, "SUCCEEDED", metrics, null), 1542325731000L));
    handler.emitEvent(new Event(EventType.TASK_FINISHED,
        new TaskFinished("worker", 1, "FAILED", Collections.emptyList(), "Exit code: 3"), 1542325732000L));
    handler.emitEvent(new Event(EventType.APPLICATION_FINISHED,
        new ApplicationFinished(APP, 2, 1, Collections.emptyList()), 1542325733000L));
    handler.stop(folder, job.setCompleted(1542325733637L).setStatus("FAILED").build());
  }
}
